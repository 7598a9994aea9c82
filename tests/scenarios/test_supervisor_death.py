"""The death of a supervisor before and after each record that it writes. A new supervisor continues the job."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from regroup.service.domain.states import TRANSITIONS, JobState
from regroup.service.ports.sync import SupervisorEvent
from regroup.workers.contract.messages import Exited, Failed, Message
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import STEPS, FakeNodes, life

Breaks = Mapping[tuple[int, int], Message | str]

KILLED = Exited(0, 1, -9, 3.0)
BAD = Failed(0, 1, RankError(ErrorClass.USER, "ValueError", "bad", "Traceback …", 2, "forward", 3.0))
SCENES: Mapping[str, Breaks] = {
    "no fault": {},
    "a rank dies": {(1, 4): KILLED},
    "an agent dies": {(1, 4): "node-1"},
    "a rank dies, and one of the next generation": {(1, 3): KILLED, (2, 5): Exited(0, 2, -11, 4.0)},
    "user code raises": {(1, 2): BAD},
    "ranks die repeatedly": {(generation, 2): Exited(0, generation, -11, 3.0) for generation in range(1, 9)},
}


class Mortal(Records):
    """Records whose writer dies before or after write number `at`."""

    def __init__(self, at: int | None = None, *, is_written: bool = False) -> None:
        super().__init__()
        self.at, self.is_written = at, is_written
        self.writes: list[str] = []
        self.died = asyncio.Event()

    async def create(self, key: str, value: bytes) -> bool:
        if self.died.is_set():
            await asyncio.Event().wait()
        number = len(self.writes)
        self.writes.append(key)
        if number == self.at and not self.is_written:
            await self._die()
        created = await super().create(key, value)
        if number == self.at:
            await self._die()
        return created

    def revive(self) -> None:
        self.at, self.died = None, asyncio.Event()

    async def _die(self) -> None:
        self.died.set()
        await asyncio.Event().wait()


@dataclass
class Outcome:
    """The events that the database would have at the end."""

    events: dict[str, SupervisorEvent] = field(default_factory=dict[str, SupervisorEvent])

    def of(self, kind: str) -> list[SupervisorEvent]:
        return [event for event in self.events.values() if event.type == kind]

    @property
    def states(self) -> list[str]:
        return [event.data["state"] for event in self.of("state")]

    @property
    def end(self) -> tuple[str, str]:
        last = self.of("state")[-1].data
        return last["state"], last["reason"]

    @property
    def incidents(self) -> list[dict[str, Any]]:
        """The newest revision of each incident."""
        newest = {event.data["id"]: dict(event.data) for event in self.of("incident")}
        return list(newest.values())

    @property
    def committed(self) -> list[int]:
        """Steps of the rows that no later generation has superseded."""
        starts = {event.generation: event.data["start_step"] for event in self.of("generation")}
        return sorted(
            event.data["step"]
            for event in self.of("step")
            if all(start >= event.data["step"] for number, start in starts.items() if number > event.generation)
        )


async def run_to_end(breaks: Breaks, records: Mortal) -> Outcome:
    """Run a job to its end, with a new supervisor after each death."""
    nodes, outcome = FakeNodes(breaks), Outcome()
    while True:
        made, journal = life(nodes, records)
        running = asyncio.create_task(made.run())
        dying = asyncio.create_task(records.died.wait())
        done, _ = await asyncio.wait({running, dying}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert done, "the supervisor hangs"
        is_dead = records.died.is_set()
        for task in (running, dying):
            task.cancel()
        await asyncio.gather(running, dying, return_exceptions=True)
        for event in await journal.since("", 0, 0):
            outcome.events.setdefault(event.key, event)
        if not is_dead:
            return outcome
        records.revive()


@pytest.mark.parametrize("scene", SCENES)
async def test_the_job_ends_the_same_if_its_supervisor_dies_at_any_write(
    scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.policy.recovery.budget._BACKOFF_CAP_S", 0.0)
    whole_records = Mortal()
    whole = await run_to_end(SCENES[scene], whole_records)
    for at, key in enumerate(whole_records.writes):
        for is_written in (False, True):
            records = Mortal(at, is_written=is_written)
            outcome = await run_to_end(SCENES[scene], records)
            detail = (
                f"dead {'after' if is_written else 'before'} write {at}, {key}: {outcome.states}, {outcome.incidents}"
            )
            assert len(records.writes) > at, detail
            assert outcome.end == whole.end, detail
            assert [item["reason"] for item in outcome.incidents] == [item["reason"] for item in whole.incidents], (
                detail
            )
            assert [item["recovery_action"] for item in outcome.incidents] == [
                item["recovery_action"] for item in whole.incidents
            ], detail
            assert outcome.committed == whole.committed, detail
            for one, other in pairwise(outcome.states):
                assert JobState(other) in TRANSITIONS[JobState(one)] or one == other, detail
            if whole.end[0] == "SUCCEEDED":
                assert outcome.committed == list(range(1, STEPS + 1)), detail
                assert all("first_step_s" in item["times"] for item in outcome.incidents), detail
            numbers = [json.loads(value)["number"] for key, value in records.data.items() if key.startswith("gen")]
            assert numbers == sorted(set(numbers)), detail
