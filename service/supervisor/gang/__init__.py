"""The nodes and ranks of a job, as its supervisor calls and watches them."""
