"""`regroup gateway`: a process next to a Ray node that makes calls of the control plane in its Ray cluster."""
