"""Rows of jobs: state transitions with their events and outbox, ingested reports, and totals of ended jobs."""
