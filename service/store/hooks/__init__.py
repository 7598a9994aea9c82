"""Hooks: their rows, the outbox that events are written to, and the deliveries."""
