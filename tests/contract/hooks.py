"""Hooks of schemathesis: parameters whose effect its checks do not know."""

from typing import Any

import schemathesis

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change a request before it is sent.

    - A request that would follow a stream reads it once: the stream of a waiting job never ends.
    - In a sequence, no request is a dry run: the object that it shows does not exist for the next one.
    - In a sequence, no request has a drawn entity tag or key: the server would refuse most of them.
    """
    if _is_true(case.query.get("follow")):
        case.query.pop("follow")
    if case.meta is not None and case.meta.phase.name == "stateful":
        if _is_true(case.query.get("dry_run")):
            case.query.pop("dry_run")
        for name in ("If-Match", "Idempotency-Key"):
            case.headers.pop(name, None)


def _is_true(value: object) -> bool:
    return str(value).lower() in _TRUE
