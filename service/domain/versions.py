"""Versions of objects as entity tags (RFC 9110, 8.8.3).

With them, a client changes an object only if it is as the client saw it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from regroup.service.domain.errors import PreconditionError

_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_JOB_TAG = re.compile(r'"(\d{1,18})\.\d{1,18}"')


def etag_of(facts: Mapping[str, Any] | None) -> str:
    """Return the entity tag of an object with these facts: plain data that changes with the object."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'


def is_match(if_match: str, etag: str | None) -> bool:
    """Return whether `If-Match` accepts an object: `*` any that exists, a list of tags the ones of these states.

    Args:
        etag: entity tag of the object; None if it does not exist.

    Raises:
        PreconditionError: `if_match` is neither.
    """
    tags = _tags_in(if_match)
    return etag is not None and (tags is None or etag in tags)


def job_versions_in(if_match: str) -> frozenset[int] | None:
    """Return the versions of a job in `If-Match`; None for `*`.

    Raises:
        PreconditionError: one of the tags is not that of a job.
    """
    tags = _tags_in(if_match)
    if tags is None:
        return None
    found = [_JOB_TAG.fullmatch(tag) for tag in tags]
    if not all(found):
        raise PreconditionError(f"If-Match {if_match!r} is not an ETag of a job; get the job again")
    return frozenset(int(match[1]) for match in found if match)


def _tags_in(if_match: str) -> frozenset[str] | None:
    if if_match.strip() == "*":
        return None
    tags = [part.strip() for part in if_match.split(",")]
    if wrong := [tag for tag in tags if not _TAG.fullmatch(tag)]:
        raise PreconditionError(
            f'If-Match: {wrong[0][:100]!r} is not an ETag; send the value of `etag` with its quotation marks, or "*"'
        )
    return frozenset(tags)
