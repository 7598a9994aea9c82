"""The Python client of the REST API, for example for scripts and notebooks."""
