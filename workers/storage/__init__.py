"""Durable storage through fsspec, blocking and asynchronous."""
