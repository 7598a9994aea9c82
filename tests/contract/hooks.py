"""Hooks of schemathesis."""

from typing import Any

import schemathesis

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Send a request that would follow a stream as one that reads it once: the stream of a waiting job never ends."""
    if isinstance(case.query, dict) and str(case.query.get("follow")).lower() in _TRUE:
        case.query.pop("follow")
