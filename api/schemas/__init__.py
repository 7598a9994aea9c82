"""Wire models of the REST API (v1), shared by the server and the clients."""
