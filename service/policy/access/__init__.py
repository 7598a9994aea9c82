"""Roles, permissions, and the decision who may do what."""
