"""Parallelism applied to a model rather than written into it."""
