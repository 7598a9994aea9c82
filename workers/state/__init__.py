"""Training state that outlives a rank: snapshots and checkpoints."""
