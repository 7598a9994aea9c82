"""Transfers that move exactly the parts of a saved state that each node needs. Imports neither torch nor ray."""
