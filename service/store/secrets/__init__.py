"""Storage of secrets. Values arrive encrypted: nothing here has a key."""
