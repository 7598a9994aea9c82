"""Typed values of the database's rows, and their sums."""
