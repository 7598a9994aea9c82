"""Protocols between the control plane and a cluster: `Cluster` and `Agents`."""
