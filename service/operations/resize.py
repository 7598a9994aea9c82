"""Resize of a job: the legal sizes, and the request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.operations.projects import check_resize
from regroup.service.spec.job import JobSpec
from regroup.service.spec.types import MAX_RANKS
from regroup.service.spec.workload import BuiltinWorkload
from regroup.service.store.projects import RESIZE
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store

_NOT_RESIZABLE = frozenset({JobState.SUSPENDED, JobState.DRAINING})


@dataclass(frozen=True)
class Size:
    """Requested parallel degrees; None means the degree of the spec."""

    dp: int
    tp: int | None = None
    pp: int | None = None


async def resize(store: Store, job: JobRow, target: Layout, *, why: str, now: float, author: Author) -> JobRow:
    """Request that a job continues with this layout. A new request replaces the last one.

    Args:
        target: a legal layout of the job.

    Raises:
        SpecError: the size exceeds the project's limit.
        ConflictError: the job has ended, is ending, or is suspended.
    """
    check_resize(target, await store.queue.project(job.project))
    layout = target.to_json()

    def intent(row: JobRow) -> Mapping[str, Any]:
        if row.state.is_terminal or row.state in _NOT_RESIZABLE:
            raise ConflictError(
                f"cannot resize job {row.id}: it is {row.state} (only queued or running jobs can be resized)"
            )
        before = row.intents.get(RESIZE)
        if (before["layout"] if before else row.layout) == layout:
            return {}
        return {RESIZE: {"layout": layout, "why": why, "requested_s": now}}

    return await store.intend(job.id, intent, now=now, author=author, action="jobs.resize")


def layout_for(spec: JobSpec, size: Size) -> Layout:
    """Return the layout of a size.

    Raises:
        SpecError: the size is not legal for this job.
    """
    tp, pp = size.tp or spec.layout.tp, size.pp or spec.layout.pp
    is_other_split = (tp, pp) != (spec.layout.tp, spec.layout.pp)
    if is_other_split and not isinstance(spec.workload, BuiltinWorkload):
        raise SpecError(
            [FieldIssue("tp", "only the built-in trainer can change tp and pp in a running job; omit them", tp)]
        )
    if size.dp * tp * pp * spec.layout.cp > MAX_RANKS:
        message = f"a job can have at most {MAX_RANKS:,} ranks"
        raise SpecError([FieldIssue("dp", message, size.dp * tp * pp * spec.layout.cp)])
    resized = spec.with_model_parallel(tp, pp)
    if spec.layout.dp.min <= size.dp <= spec.layout.dp.max:
        layout = next(resized.legal_layouts(size.dp), None)
        if layout is not None:
            return layout
    ladder = resized.ladder
    split = f" with tp={tp}, pp={pp}" if is_other_split else ""
    if not ladder:
        raise SpecError([FieldIssue("tp" if tp > 1 else "pp", f"this job has no legal size{split}")])
    near = sorted(ladder, key=lambda layout: (abs(layout.data_degree - size.dp), layout.data_degree))[:2]
    nearest = " and ".join(str(layout.data_degree) for layout in sorted(near, key=lambda layout: layout.data_degree))
    dp = spec.layout.dp
    message = f"not a legal size of this job (dp from {dp.min} to {dp.max}{split}); nearest legal: {nearest}"
    raise SpecError([FieldIssue("dp", message, size.dp)])
