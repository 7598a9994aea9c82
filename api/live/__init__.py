"""Fold the events of a running job into one view and show it."""
