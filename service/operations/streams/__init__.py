"""Streams: those who follow jobs, or the changes of all objects. One reader per server serves all of them."""
