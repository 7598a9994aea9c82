"""Deadlines on the command line: a duration, or a time of this machine's clock."""

import re
from datetime import datetime, timedelta

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def until_deadline(text: str, now: datetime | None = None) -> float | str:
    """Return the seconds until the next time `HH:MM` of the local clock. Return any other text as it is.

    Args:
        now: the current time; None for that of the clock.
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return text
    now = now or datetime.now()
    at = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    return ((at if at > now else at + timedelta(days=1)) - now).total_seconds()
