"""What is written down of a job that was struck: all that the API says of it, and what was left of it elsewhere."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from regroup.api.chaos.checkpoint_check import list_loadable_checkpoints
from regroup.api.client.client import Client
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import InjectedFault, Record
from regroup.service.domain.states import JobState
from regroup.service.local import leftovers

_VERIFY_EVERY_S = 1.0
_CLEANUP_TIMEOUT_S = 30.0


class CheckpointCounter:
    """How many of a job's checkpoints verify, looked at again and again while it runs."""

    def __init__(self, find: Callable[[str], Sequence[str]] = list_loadable_checkpoints) -> None:
        """`find`: which there are in a job's storage."""
        self._find = find
        self.fewest: int | None = None
        """At any look since the first one was there; None if there was none, or they are not on this machine."""
        self._counted_s = 0.0

    def update(self, job: Job) -> None:
        """Verify them all, once a second and at the job's end."""
        if time.monotonic() - self._counted_s < _VERIFY_EVERY_S and not JobState(job.state).is_terminal:
            return
        self._counted_s = time.monotonic()
        count = len(self._find(job.storage_uri))
        if count or self.fewest is not None:
            self.fewest = min(count, count if self.fewest is None else self.fewest)


def record_job(
    client: Client,
    job_id: str,
    plan: FaultPlan,
    *,
    injected: Sequence[InjectedFault] = (),
    fewest_loadable: int | None = None,
) -> Record:
    """The record of a job that is over, once nothing is left that names it or half a minute has passed."""
    job = client.get(job_id)
    deadline = time.monotonic() + _CLEANUP_TIMEOUT_S
    while (left := leftovers.find_leftovers([job.id])) and time.monotonic() < deadline:
        time.sleep(0.1)

    def plain(items: Any) -> tuple[dict[str, Any], ...]:
        return tuple(item.model_dump(mode="json") for item in items)

    return Record(
        plan=plan,
        job=job.model_dump(mode="json"),
        incidents=plain(client.incidents(job.id)),
        events=plain(client.events(job.id)),
        generations=plain(client.generations(job.id)),
        rows=plain(client.steps(job.id)),
        checkpoints=plain(client.checkpoints(job.id, removed=True)),
        ledger=client.ledger(job.id).model_dump(mode="json"),
        seconds=client.why(job.id).seconds,
        injected=tuple(injected),
        leftovers=tuple(left),
        fewest_loadable=fewest_loadable,
    )
