"""What outlives a rank: snapshots, checkpoints, the data cursor and the ledger of samples."""
