"""What acts: the cluster port and its Ray adapter, the controller, the supervisor, metrics."""
