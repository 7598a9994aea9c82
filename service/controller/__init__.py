"""The leader loop of the control plane and its reconcilers."""
