"""A Ray cluster behind a gateway: the calls of `Cluster` as JSON over HTTP, and the client that sends them."""
