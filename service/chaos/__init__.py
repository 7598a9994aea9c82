"""Rehearsed failure as a product: scenarios, plans drawn from a seed, and what must hold afterwards. Pure."""
