"""Checkpoints directly between the memory of a node and durable storage."""
