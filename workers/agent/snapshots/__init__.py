"""Training state in memory that outlives the ranks: buffers, mirrors, transfers."""
