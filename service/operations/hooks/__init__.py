"""Hooks: their use cases, and the task that delivers notifications over HTTP and by e-mail."""
