"""The tools, by noun."""
