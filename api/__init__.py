"""The API: HTTP routes, wire models, command line and Python clients."""
