"""Another size for a job, while it runs: which are legal, and the wish for one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import ConflictError, FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.operations.projects import check_resize
from regroup.service.spec.job import JobSpec
from regroup.service.spec.workload import BuiltinWorkload
from regroup.service.store.projects import RESIZE
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store

_NOT_IN = frozenset({JobState.SUSPENDED, JobState.DRAINING})


@dataclass(frozen=True)
class Size:
    """What is asked for; a degree that is None stays as the spec has it."""

    dp: int
    tp: int | None = None
    pp: int | None = None


async def resize(store: Store, job: JobRow, target: Layout, *, why: str, now: float, actor: str) -> JobRow:
    """Want a job to go on at this layout, which is legal; the same wish again changes nothing, another one takes its
    place.

    Raises:
        SpecError: the project does not let a job be so large.
        ConflictError: the job is over or on its way there, or suspended.
    """
    check_resize(target, await store.queue.project(job.project))
    layout = target.to_json()

    def wanted(row: JobRow) -> Mapping[str, Any]:
        if row.state.is_terminal or row.state in _NOT_IN:
            raise ConflictError(f"job {row.id} is {row.state}: only a job that waits or runs can be of another size")
        before = row.intents.get(RESIZE)
        if (before["layout"] if before else row.layout) == layout:
            return {}
        return {RESIZE: {"layout": layout, "why": why, "asked_s": now}}

    return await store.intend(job.id, wanted, now=now, actor=actor)


def layout_for(spec: JobSpec, size: Size) -> Layout:
    """The layout of a size.

    Raises:
        SpecError: it is not legal for this job.
    """
    tp, pp = size.tp or spec.layout.tp, size.pp or spec.layout.pp
    is_other_split = (tp, pp) != (spec.layout.tp, spec.layout.pp)
    if is_other_split and not isinstance(spec.workload, BuiltinWorkload):
        raise SpecError([FieldIssue("tp", "only the built-in trainer can be split otherwise while it runs", tp)])
    ladder = spec.with_model_parallel(tp, pp).ladder
    split = f" with tp={tp}, pp={pp}" if is_other_split else ""
    if not ladder:
        raise SpecError([FieldIssue("tp" if tp > 1 else "pp", f"no size of this job is legal{split}")])
    for layout in ladder:
        if layout.data_degree == size.dp:
            return layout
    near = sorted(ladder, key=lambda layout: (abs(layout.data_degree - size.dp), layout.data_degree))[:2]
    nearest = " and ".join(str(layout.data_degree) for layout in sorted(near, key=lambda layout: layout.data_degree))
    dp = spec.layout.dp
    which = "is" if len(near) == 1 else "are"
    say = f"not a size of this job, whose dp goes from {dp.min} to {dp.max}{split}; nearest {which} {nearest}"
    raise SpecError([FieldIssue("dp", say, size.dp)])
