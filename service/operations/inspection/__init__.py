"""State and output of the ranks of a job."""
