"""Start, find and stop a local Ray cluster and its processes."""
