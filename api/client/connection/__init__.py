"""The connection of a client to a server: address, credentials, requests, streams, and their errors."""
