"""The result of a what-if simulation in one sentence. Pure."""

from collections.abc import Iterator

from regroup.service.operations.capacity.scenario import WhatIfRequest
from regroup.service.operations.capacity.what_if import WhatIf

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def summarize(request: WhatIfRequest, result: WhatIf) -> str:
    """Return for example `With 8 more nodes, the median wait falls from 42 min to 3 min; 3 jobs start later.`"""
    changes, waits = ", ".join(_changes(request, result)), result.waits
    start = f"With {changes}, " if changes else "Without a change, "
    if waits.jobs == 0:
        text = f"{start}no job that you see waits"
    else:
        before, after = duration_text(waits.median_before_s), duration_text(waits.median_after_s)
        if not changes or before == after:
            verb = f"is {before}" if not changes else f"stays {before}"
        else:
            falls = waits.median_after_s < waits.median_before_s
            verb = f"{'falls' if falls else 'rises'} from {before} to {after}"
        text = f"{start}the median wait {verb}"
    parts = [text, *_counts(result)]
    return "; ".join(parts) + "."


def duration_text(seconds: float) -> str:
    """Return a duration in its largest unit, and the next one if it is not zero."""
    rest, parts = round(seconds), list[str]()
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"


def _changes(request: WhatIfRequest, result: WhatIf) -> Iterator[str]:
    if request.add_nodes is not None:
        yield _count(request.add_nodes.count, "more node")
    if request.drain:
        yield f"{_count(result.leaving_nodes, 'node')} drained"
    if request.quotas:
        yield f"other quotas of {', '.join(sorted(request.quotas))}"
    if request.cancel:
        yield f"{_count(len(request.cancel), 'job')} cancelled"
    if request.add_jobs:
        yield f"{_count(len(request.add_jobs), 'job')} added"


def _counts(result: WhatIf) -> Iterator[str]:
    waits = result.waits
    if waits.earlier:
        yield f"{_count(waits.earlier, 'job')} start{'s' if waits.earlier == 1 else ''} earlier"
    if waits.later:
        yield f"{_count(waits.later, 'job')} start{'s' if waits.later == 1 else ''} later"
    if waits.never_after:
        does = "does" if waits.never_after == 1 else "do"
        yield f"{_count(waits.never_after, 'job')} {does} not start within {duration_text(result.horizon_s)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
