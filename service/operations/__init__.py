"""Use cases of the control plane, called by routes."""
