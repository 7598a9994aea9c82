"""Nouns that every layer shares: states, errors, layout, hardware, topology. Pure."""
