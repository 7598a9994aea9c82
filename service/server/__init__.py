"""Assemble the control plane."""
