"""Implement the ports on Ray. The only Ray imports of `service`."""
