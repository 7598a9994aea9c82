"""The limits of one identity whose refusals are counted."""

from enum import StrEnum


class Limit(StrEnum):
    """A limit of one identity, or of all together."""

    RATE = "rate"
    """Requests per second."""
    STREAMS = "streams"
    """Streams that are open at the same time."""
    UPLOADS = "uploads"
    """Requests with a part of an archive at the same time."""
    QUEUED_JOBS = "queued_jobs"
    """Jobs that are queued or suspended."""
