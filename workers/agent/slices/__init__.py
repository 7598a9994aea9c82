"""Restores of a saved state onto the ranks of a node: each receives the parts that it needs, and nothing else."""
