"""Decide what happens after a failure. Pure."""
