"""Decide which job runs next. Pure."""
