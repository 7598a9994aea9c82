"""Routes about the queue and the capacity of the cluster."""
