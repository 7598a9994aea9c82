"""Decide which size and layout a running job gets. Pure."""
