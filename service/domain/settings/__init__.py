"""Checks of settings: which values fit, and which contradict each other."""
