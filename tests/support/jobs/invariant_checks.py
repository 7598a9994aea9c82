"""The invariants I1 to I8 of `regroup chaos`, for jobs whose faults a test injects itself."""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from regroup.api.chaos.recorder import CheckpointCounter, list_loadable_checkpoints, record_job
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import FaultPlan, PlannedFault
from regroup.service.chaos.invariants import Expected, check_invariants
from regroup.service.chaos.observation import InjectedFault
from regroup.service.domain.states import JobState

_POLL_S = 0.5


class HasClient(Protocol):
    """A server that may restart at another address."""

    @property
    def client(self) -> Client:
        """Client of its current address."""
        ...


@contextlib.contextmanager
def check_all_invariants(
    server: HasClient,
    job: Job,
    expected: Expected,
    control: Job | None = None,
    find_loadable: Callable[[str], Sequence[str]] = list_loadable_checkpoints,
) -> Generator[Callable[[str], None]]:
    """Check that all eight invariants hold for a job that ends within the block.

    A thread counts the job's checkpoints during the block. The block gets a function and must call it with the name
    of each fault, as `regroup chaos` names it, just before it injects the fault. No process reports to the supervisor
    that a node was cut off, and the time until detection counts.

    Args:
        control: the undisturbed run; not needed for a job that must fail.
        find_loadable: replacement of `list_loadable_checkpoints`, for storage that is not a folder.
    """
    checkpoints, is_over, injected = CheckpointCounter(find_loadable), threading.Event(), list[InjectedFault]()

    def record_fault(do: str) -> None:
        injected.append(InjectedFault(do, do, time.time(), at_step=0, generation=0))

    def count_checkpoints() -> None:
        while not is_over.wait(_POLL_S):
            with (
                contextlib.suppress(ApiError, ServerUnreachableError),
                Client(server.client.url, patience_s=0.0) as client,
            ):
                checkpoints.update(client.get(job.id))

    counter = threading.Thread(target=count_checkpoints)
    counter.start()
    try:
        yield record_fault
    finally:
        is_over.set()
        counter.join()
    done = server.client.get(job.id)
    plan = FaultPlan(
        job.name, seed=0, steps=0, external_faults=tuple(PlannedFault(each.do, each.at_step) for each in injected)
    )
    assert JobState(done.state).is_terminal, f"the block ended before the job, whose state is {done.state}"
    checkpoints.update(done)
    record = record_job(server.client, job.id, plan, injected=injected, fewest_loadable=checkpoints.fewest)
    undisturbed = record if control is None else record_job(server.client, control.id, plan)
    findings = check_invariants(record, undisturbed, expected)
    problems = {found.invariant: found.problems for found in findings if found.problems}
    assert not problems, problems
