"""Generators of the reference pages in `docs/`. `docs/generate.py` calls them."""
