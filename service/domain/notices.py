"""The words of notices, which tell clients what has changed."""

from enum import StrEnum


class Topic(StrEnum):
    """Kinds of objects that change."""

    JOB = "job"
    NODE = "node"
    PROJECT = "project"
    STREAM = "stream"
    """The stream of notices itself."""


START = "start"
"""Kind of the first notice of a stream that begins now."""
MISSED = "missed"
"""Kind of a notice in place of others that were removed."""
