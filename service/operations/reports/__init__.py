"""Reports over all jobs and over the server."""
