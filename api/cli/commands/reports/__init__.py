"""Commands that show reports over all jobs and over the server."""
