"""Range of user ids for the ranks of jobs. Plain data, no torch, no ray."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_ID, LAST_ID = 1000, 2**32 - 3
"""Smallest and largest id in a range. Ids below belong to the system; the two above have a meaning for the kernel."""
_OVERFLOW_ID = 65534
"""User id that the kernel reports for each user who has no mapping in this namespace (`nobody`)."""
_FORM = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


@dataclass(frozen=True)
class UserRange:
    """Ids `first` to `last`. The group of a user has the same id."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of ids."""
        return self.last - self.first + 1

    def candidates(self, job_id: str) -> Iterator[int]:
        """Yield every id once. A job has the same first candidates on every node."""
        start = int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:8]) % self.size
        for step in range(self.size):
            yield self.first + (start + step) % self.size


def parse_user_range(text: str) -> UserRange:
    """Return the range of a text like `200000-265535`.

    Raises:
        ValueError: The text has another form, or contains an id that ranks must not have.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{text!r} is not a range of user ids; write FIRST-LAST, for example 200000-265535")
    first, last = int(form[1]), int(form[2])
    if not FIRST_ID <= first <= last <= LAST_ID:
        raise ValueError(f"the range {text} must be within {FIRST_ID}-{LAST_ID}, and its first id not above its last")
    if first <= _OVERFLOW_ID <= last:
        raise ValueError(f"the range {text} contains {_OVERFLOW_ID}, the id of users without a name; choose another")
    return UserRange(first, last)
