"""Content-addressed archives of user code."""
