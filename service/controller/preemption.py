"""Jobs that are to give up what they hold: for another, or because they are to be suspended. Told so, once each."""

from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.scheduling.preemption import Shrink, Suspend
from regroup.service.store.job_writer import SUSPEND
from regroup.service.store.projects import MAKE_ROOM, RESIZE
from regroup.service.store.records import JobRow, Lease
from regroup.service.store.store import Store

_REASONS = {SUSPEND: Reason.SUSPENDED, MAKE_ROOM: Reason.PREEMPTED}
"""Of intents by which a job gives all up, the first that it has."""


async def make_room(store: Store, lease: Lease, decision: Shrink | Suspend, *, now: float) -> None:
    """Tell the job. What it gives up is free when it has let go of it."""
    told = {"why": decision.why, "asked_s": now}
    match decision:
        case Shrink():
            # Nobody wants it to be small: it may grow again where there is room.
            intent = {RESIZE: {**told, "layout": decision.layout.to_json(), "is_asked": False}}
        case Suspend():
            intent = {MAKE_ROOM: told}
    await store.queue.make_room(lease, decision.job_id, intent, now=now)


def room_intent(job: JobRow) -> dict[str, Any]:
    """What a supervisor is told of that: to end at the next step, save it, and give all nodes up."""
    for name, reason in _REASONS.items():
        if (asked := job.intents.get(name)) is not None:
            told = {"leaving": {}, "why": asked["why"], "noticed_s": asked["asked_s"], "deadline_s": None}
            return {"drain": {**told, "gives_up": True, "reason": reason.value}}
    return {}
