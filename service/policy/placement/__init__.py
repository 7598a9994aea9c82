"""Choose nodes for the ranks of a job. Pure."""
