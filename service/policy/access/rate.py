"""Rates of requests: a token bucket. Pure: the time is an argument.

A bucket holds up to `burst` requests and gains `per_s` requests each second. A request takes one.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RateLimit:
    """Limit of one identity."""

    per_s: float
    """Requests per second in the long run."""
    burst: int
    """Requests at once after a pause."""


@dataclass(frozen=True)
class Bucket:
    """Requests that are left at a time."""

    left: float
    at_s: float
    """Monotonic seconds."""


def acquire_request(bucket: Bucket | None, limit: RateLimit, now_s: float) -> tuple[Bucket, float]:
    """Acquire one request from a bucket.

    Args:
        bucket: the bucket after the last request; None for a full one.
        limit: the limit.
        now_s: monotonic seconds.

    Returns:
        The bucket after it, and 0; or the same bucket at this time, and the seconds until a request is allowed.
    """
    left = float(limit.burst)
    if bucket is not None:
        left = min(left, bucket.left + max(0.0, now_s - bucket.at_s) * limit.per_s)
    if left >= 1.0:
        return Bucket(left - 1.0, now_s), 0.0
    return Bucket(left, now_s), (1.0 - left) / limit.per_s


def is_full(bucket: Bucket, limit: RateLimit, now_s: float) -> bool:
    """Return True if nothing is missing from the bucket, so that nothing has to be remembered."""
    return bucket.left + (now_s - bucket.at_s) * limit.per_s >= limit.burst
