"""Start, find and end a local Ray cluster and its processes."""
