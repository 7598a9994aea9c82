"""Routes of reports over all jobs and over the server."""
