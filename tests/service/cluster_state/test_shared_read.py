"""One result for all that read the same state."""

import asyncio
from dataclasses import dataclass, field, replace

from regroup.service.cluster_state.shared_read import VALID_S, SharedRead
from regroup.service.store.jobs.state_version import StateVersion


@dataclass
class State:
    """A state that changes, with the keys for which it was read."""

    version: StateVersion = field(default_factory=lambda: StateVersion(1, 1, "job_1", 1, 1))
    read: list[str] = field(default_factory=list[str])
    now_s: float = 100.0

    async def get_version(self) -> StateVersion:
        await asyncio.sleep(0)
        return self.version

    async def read_all(self, key: str) -> int:
        self.read.append(key)
        found = self.version.revisions
        await asyncio.sleep(0)
        return found

    def change(self) -> None:
        self.version = replace(self.version, revisions=self.version.revisions + 1)


def shared(state: State) -> SharedRead[str, int]:
    return SharedRead(state.get_version, state.read_all, lambda: state.now_s)


async def test_many_readers_of_the_same_state_cost_one_read() -> None:
    state = State()
    reads = shared(state)
    assert await asyncio.gather(*(reads.get("all") for _ in range(50))) == [1] * 50
    assert state.read == ["all"]
    assert await reads.get("vision") == 1 and state.read == ["all", "vision"]


async def test_a_reader_after_a_change_sees_it() -> None:
    state = State()
    reads = shared(state)
    await reads.get("all")
    state.change()
    assert await asyncio.gather(*(reads.get("all") for _ in range(3))) == [2] * 3
    assert state.read == ["all", "all"]


async def test_a_change_during_the_read_is_seen_by_the_next_reader() -> None:
    state = State()
    reads = shared(state)
    first = asyncio.create_task(reads.get("all"))
    while not state.read:  # noqa: ASYNC110  # the task runs in this loop
        await asyncio.sleep(0)
    state.change()
    assert await first == 1
    assert await reads.get("all") == 2


async def test_a_result_is_read_again_after_a_second_and_after_a_jump_of_the_clock() -> None:
    state = State()
    reads = shared(state)
    await reads.get("all")
    state.now_s += VALID_S * 0.9
    await reads.get("all")
    assert len(state.read) == 1
    state.now_s += VALID_S * 0.2
    await reads.get("all")
    state.now_s -= 50
    await reads.get("all")
    assert len(state.read) == 3
