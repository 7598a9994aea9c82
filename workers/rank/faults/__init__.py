"""Fault injection inside a rank or its saver."""
