"""Wire models of the ranks of a job and of their output."""
