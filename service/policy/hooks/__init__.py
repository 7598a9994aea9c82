"""Decisions about hooks: the events that match, allowed destinations, the content of messages, and retries."""
