"""The platform's own job that measures nodes and the ways between them: an ordinary training function."""
