"""Notices: recent changes, in one order over all jobs, nodes and projects."""
