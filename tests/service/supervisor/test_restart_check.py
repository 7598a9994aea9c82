"""The supervisor's part of the restart check: when the first generation ends, and what follows from the comparison."""

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.service.supervisor.restart_check import ProgramCheck, RestartCheck
from regroup.workers.contract.messages import Done, Restored, StateDigest
from regroup.workers.contract.restart_check import PROGRAM_STOPS
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
    return GenerationMonitor(Generation(number, Layout(dp_shard=2), RankMap.of(places), source, "start"))


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


# ------------------------------------------------------------------------------------------------ programs


def run_program(number: int, states: str, *, start: int = 0, stops: bool = True) -> GenerationMonitor:
    """Return the monitor of a generation of a program: it takes a step for each letter, and ends by plan or not yet."""
    made = monitor(number)
    for rank in range(2):
        made.receive("n", Restored(rank, number, start, 1.0))
        for step, state in enumerate(states, start + 1):
            made.receive("n", StateDigest(rank, number, step, {"w": state}))
        if stops:
            made.receive("n", Done(rank, number, start + len(states), stopped=True))
    return made


def end_by_plan(check: ProgramCheck, made: GenerationMonitor) -> None:
    check.poll(made)
    cause = check.find_end(made)
    assert cause is not None and cause.reason is Reason.RESTART_CHECK


def judged(check: ProgramCheck, made: GenerationMonitor) -> tuple[Reason, str]:
    with pytest.raises(Finished) as ended:
        check.poll(made)
    return ended.value.reason, str(ended.value)


def test_a_program_ends_until_it_continues_from_a_checkpoint() -> None:
    check = ProgramCheck(is_on=True)
    end_by_plan(check, run_program(1, "abc"))
    end_by_plan(check, run_program(2, "abcdef"))  # the program started over
    check.poll(run_program(3, "e", start=4, stops=False))
    reason, message = judged(check, run_program(3, "ef", start=4, stops=False))
    assert (reason, message) == (Reason.RESTART_VERIFIED, "steps 5 to 6 are equal")


def test_a_program_whose_repeated_steps_differ_ends_with_the_difference() -> None:
    check = ProgramCheck(is_on=True)
    end_by_plan(check, run_program(1, "abc"))
    reason, message = judged(check, run_program(2, "x", start=2, stops=False))
    assert reason is Reason.STATE_NOT_RESTORED
    assert message.startswith("a restart from the program's checkpoint of step 2 changes the result: after step 3, ")


def test_a_program_whose_first_step_equals_none_ends_with_the_difference() -> None:
    check = ProgramCheck(is_on=True)
    end_by_plan(check, run_program(1, "abc"))
    reason, message = judged(check, run_program(2, "x", start=0, stops=False))  # the optimizer lost its state
    assert reason is Reason.STATE_NOT_RESTORED
    assert message.startswith("a restart from the program's checkpoint changes the result: after the first step, ")


def test_a_program_that_never_saves_ends_without_a_verdict() -> None:
    check = ProgramCheck(is_on=True)
    for number in range(1, len(PROGRAM_STOPS)):
        end_by_plan(check, run_program(number, "abc"))
    reason, message = judged(check, run_program(len(PROGRAM_STOPS), "a", stops=False))
    assert reason is Reason.RESTART_NOT_VERIFIED and "let it save a checkpoint in its first steps" in message


def test_a_checkpoint_from_before_the_check_is_named() -> None:
    reason, message = judged(ProgramCheck(is_on=True), run_program(1, "a", start=40, stops=False))
    assert reason is Reason.RESTART_NOT_VERIFIED and "a checkpoint of step 40 that it found" in message


def test_a_failure_of_a_program_before_the_comparison_ends_the_check() -> None:
    check = ProgramCheck(is_on=True)
    end_by_plan(check, run_program(1, "abc"))
    reason, message = judged(check, run_program(3, "c", start=2, stops=False))
    assert reason is Reason.RESTART_NOT_VERIFIED and "a failure or another planned end" in message
    assert judged(ProgramCheck(is_on=True), run_program(2, "c", start=2))[0] is Reason.RESTART_NOT_VERIFIED


def test_a_program_that_is_not_checked_continues() -> None:
    check = ProgramCheck(is_on=False)
    assert check.find_end(run_program(1, "abc")) is None
    check.poll(run_program(2, "x", start=2, stops=False))
