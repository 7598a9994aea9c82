"""Execution of the fault plans of `service.chaos` on a dedicated local service."""
