"""Jobs that are to make room for another: told so, once each."""

from typing import Any

from regroup.service.policy.preemption import Shrink, Suspend
from regroup.service.states import Reason
from regroup.service.store.queue import MAKE_ROOM
from regroup.service.store.records import JobRow, Lease
from regroup.service.store.store import Store

CAN_SHRINK = False
"""Whether a job can be told to run on with less. As long as it cannot, the queue asks for no `Shrink`: who has to make
room is suspended as a whole."""


async def make_room(store: Store, lease: Lease, decision: Shrink | Suspend, *, now: float) -> None:
    """Tell the job. What it gives up is free when it has let go of it."""
    await store.queue.make_room(lease, decision.job_id, decision.why, now=now)


def room_intent(job: JobRow) -> dict[str, Any]:
    """What a supervisor is told of that: to end at the next step, save it, and give all nodes up."""
    asked = job.intents.get(MAKE_ROOM)
    if asked is None:
        return {}
    told = {"leaving": {}, "why": asked["why"], "noticed_s": asked["asked_s"], "deadline_s": None, "gives_up": True}
    return {"drain": {**told, "reason": Reason.PREEMPTED.value}}
