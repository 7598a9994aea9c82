"""I1 to I8, as `regroup chaos` judges them, of jobs that a test strikes by means of its own."""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from regroup.api.chaos.recorder import CheckpointCounter, list_loadable_checkpoints, record_job
from regroup.api.client.client import Client
from regroup.api.client.errors import ApiError, ServerUnreachableError
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import FaultPlan, PlannedFault
from regroup.service.chaos.invariants import Expected, check_invariants
from regroup.service.chaos.observation import InjectedFault
from regroup.service.domain.states import JobState

_LOOK_EVERY_S = 0.5


class HasClient(Protocol):
    """A server that may be started again at another place."""

    @property
    def client(self) -> Client:
        """Of where it is now."""
        ...


@contextlib.contextmanager
def judged(
    server: HasClient,
    job: Job,
    expected: Expected,
    control: Job | None = None,
    find_loadable: Callable[[str], Sequence[str]] = list_loadable_checkpoints,
) -> Generator[Callable[[str], None]]:
    """All eight hold of a job that the block brings to its end; its checkpoints are looked at meanwhile.

    What the block is given is to be told of each blow just before it falls, by the name that `regroup chaos` has for
    it: nobody tells the supervisor of a node that was cut off, and the time until it is noticed counts.

    `control`: the undisturbed run; a job that is not to succeed needs none. `find_loadable`: as
    `list_loadable_checkpoints`, for storage that is no folder.
    """
    checkpoints, is_over, injected = CheckpointCounter(find_loadable), threading.Event(), list[InjectedFault]()

    def fell(do: str) -> None:
        injected.append(InjectedFault(do, do, time.time(), at_step=0, generation=0))

    def look() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            with (
                contextlib.suppress(ApiError, ServerUnreachableError),
                Client(server.client.url, patience_s=0.0) as client,
            ):
                checkpoints.update(client.get(job.id))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield fell
    finally:
        is_over.set()
        looking.join()
    done = server.client.get(job.id)
    plan = FaultPlan(
        job.name, seed=0, steps=0, external_faults=tuple(PlannedFault(each.do, each.at_step) for each in injected)
    )
    assert JobState(done.state).is_terminal, f"the block ended before the job, which is {done.state}"
    checkpoints.update(done)
    record = record_job(server.client, job.id, plan, injected=injected, fewest_loadable=checkpoints.fewest)
    undisturbed = record if control is None else record_job(server.client, control.id, plan)
    findings = check_invariants(record, undisturbed, expected)
    problems = {found.invariant: found.problems for found in findings if found.problems}
    assert not problems, problems
