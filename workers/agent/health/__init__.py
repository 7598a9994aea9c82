"""Checks of this node: preflight, GPU errors, clock, memory and disk."""
