"""Notices: what has changed recently, in one order over all jobs, nodes and projects."""
