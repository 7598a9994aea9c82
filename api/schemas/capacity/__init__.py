"""Wire models about the queue and the capacity of the cluster."""
