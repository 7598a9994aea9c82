"""The Python client: runs on a laptop or in a notebook and speaks to the REST API."""
