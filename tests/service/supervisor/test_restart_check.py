"""The supervisor's part of the restart check: when the first generation ends, and what follows from the comparison."""

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.service.supervisor.restart_check import RestartCheck
from regroup.workers.contract.messages import Done, StateDigest
from tests.support.doubles.memory_records import Records


class Checked:
    """A restart check, and the notes that it has emitted."""

    def __init__(self, verify: str = "restart") -> None:
        self.journal = Journal(Records(), "j")
        self.check = RestartCheck(EventLog(self.journal, 1), verify)

    async def notes(self) -> list[tuple[str, str]]:
        events = await self.journal.since("", 0, 0)
        return [(event.data["kind"], event.data["message"]) for event in events]


def monitor(number: int, source: RestoreSource = RestoreSource(RestoreKind.NONE)) -> GenerationMonitor:  # noqa: B008
    places = tuple(RankPlace(rank, "n", "n", "10.0.0.1", rank, 0) for rank in range(2))
    return GenerationMonitor(Generation(number, Layout(dp_shard=2), places, source, "start"))


def train_steps(monitor: GenerationMonitor, digest: str = "a", *, stops: bool) -> GenerationMonitor:
    number = monitor.generation.number
    for rank in range(2):
        for step in (3, 4):
            monitor.receive("n", StateDigest(rank, number, step, {"w": digest}))
        if stops:
            monitor.receive("n", Done(rank, number, 4, stopped=True))
    return monitor


MEMORY = RestoreSource(RestoreKind.MEMORY, 2, 1)


async def test_the_first_generation_ends_by_plan_and_equal_steps_are_noted() -> None:
    checked = Checked()
    first = monitor(1)
    checked.check.poll(first)
    assert checked.check.find_end(first) is None
    cause = checked.check.find_end(train_steps(first, stops=True))
    assert cause is not None and cause.reason is Reason.RESTART_CHECK
    second = monitor(2, MEMORY)
    checked.check.poll(second)
    assert await checked.notes() == []
    for _ in range(2):
        checked.check.poll(train_steps(second, stops=False))
        assert await checked.notes() == [("restart_verified", "steps 3 to 4 are equal")]


async def test_a_difference_ends_the_job_and_names_the_part() -> None:
    checked = Checked()
    checked.check.find_end(train_steps(monitor(1), stops=True))
    with pytest.raises(Finished, match="after step 3, 1 part of the state of ranks 0, 1 changed: w") as ended:
        checked.check.poll(train_steps(monitor(2, MEMORY), "b", stops=False))
    assert ended.value.reason is Reason.STATE_NOT_RESTORED
    error = dict(ended.value.error or {})
    assert (error["after_step"], error["ranks"], error["parts"]) == (3, [0, 1], ["w"])


async def test_a_failure_before_the_end_of_the_check_skips_it_with_a_note() -> None:
    checked = Checked()
    assert checked.check.find_end(train_steps(monitor(1), stops=False)) is None
    checked.check.poll(monitor(2, MEMORY))
    assert [kind for kind, _ in await checked.notes()] == ["restart_check_skipped"]


async def test_nothing_happens_unless_the_spec_requests_it() -> None:
    checked = Checked("off")
    assert checked.check.find_end(train_steps(monitor(1), stops=True)) is None
    checked.check.poll(train_steps(monitor(2, MEMORY), "b", stops=False))
    assert await checked.notes() == []


async def test_a_job_that_checks_only_this_ends_after_the_comparison() -> None:
    checked = Checked("restart_only")
    assert checked.check.find_end(train_steps(monitor(1), stops=True)) is not None
    second = monitor(2, MEMORY)
    checked.check.poll(second)
    with pytest.raises(Finished, match="steps 3 to 4 are equal") as ended:
        checked.check.poll(train_steps(second, stops=False))
    assert ended.value.reason is Reason.RESTART_VERIFIED
    assert await checked.notes() == [("restart_verified", "steps 3 to 4 are equal")]


def test_a_job_that_checks_only_this_ends_if_a_failure_came_first() -> None:
    checked = Checked("restart_only")
    assert checked.check.find_end(train_steps(monitor(1), stops=False)) is None
    with pytest.raises(Finished, match="the restart check was skipped") as ended:
        checked.check.poll(monitor(2, MEMORY))
    assert ended.value.reason is Reason.RESTART_NOT_VERIFIED
