"""Mutation testing: put one small error at a time into engine and policies; unit tests must fail."""
