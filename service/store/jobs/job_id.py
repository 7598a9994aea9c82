"""Ids of new jobs."""

import secrets

from regroup.service.domain.credentials.random_secrets import DIGITS


def new_job_id(now: float) -> str:
    """Return `job_` and 18 characters that grow with time. A job's name has no underscore, so it is never an id."""
    value = (int(now * 1000) << 40) | secrets.randbits(40)
    digits = [DIGITS[(value >> shift) & 31] for shift in range(85, -1, -5)]
    return "job_" + "".join(digits)
