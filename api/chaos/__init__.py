"""Carries out the plans of `service.chaos` on a service of its own on this machine."""
