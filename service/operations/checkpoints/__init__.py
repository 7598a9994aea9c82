"""Checkpoints in durable storage: their files, and whether these are complete and intact."""
