"""Jobs that are to make room for another: told so, once each."""

from typing import Any

from regroup.service.policy.preemption import Shrink, Suspend
from regroup.service.states import Reason
from regroup.service.store.queue import MAKE_ROOM, RESIZE
from regroup.service.store.records import JobRow, Lease
from regroup.service.store.store import Store


async def make_room(store: Store, lease: Lease, decision: Shrink | Suspend, *, now: float) -> None:
    """Tell the job. What it gives up is free when it has let go of it."""
    told = {"why": decision.why, "asked_s": now}
    match decision:
        case Shrink():
            # Nobody wants it to be small: it may grow again where there is room.
            intent = {RESIZE: {**told, "layout": decision.to.to_json(), "is_asked": False}}
        case Suspend():
            intent = {MAKE_ROOM: told}
    await store.queue.make_room(lease, decision.job_id, intent, now=now)


def room_intent(job: JobRow) -> dict[str, Any]:
    """What a supervisor is told of that: to end at the next step, save it, and give all nodes up."""
    asked = job.intents.get(MAKE_ROOM)
    if asked is None:
        return {}
    told = {"leaving": {}, "why": asked["why"], "noticed_s": asked["asked_s"], "deadline_s": None, "gives_up": True}
    return {"drain": {**told, "reason": Reason.PREEMPTED.value}}
