"""Routes of the checkpoints of a job."""
