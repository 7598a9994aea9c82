"""The stream of notices: what has changed in all jobs, nodes and projects that a sender sees."""
