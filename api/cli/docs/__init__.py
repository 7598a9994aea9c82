"""Generators of the command-line and spec references in `docs/`."""
