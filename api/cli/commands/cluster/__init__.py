"""Commands for the nodes of the cluster."""
