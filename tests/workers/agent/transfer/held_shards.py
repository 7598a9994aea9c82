"""Shards in real memory files, and agents that have them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import Pin, ShardBuffer

KEY = ShardKey(rank=1, generation=3, step=5)
ROWS, COLUMNS = 1500, 1024
PLAN = BufferLayout((
    Entry("weight", "float64", (2 * ROWS, COLUMNS), (ROWS, 0), (ROWS, COLUMNS), 8 * ROWS * COLUMNS),
    Entry("bias", "uint8", (17,), (0,), (17,), 17),
))  # fmt: skip
"""A shard of three chunks."""


@dataclass
class Shards:
    """Store of shards for one agent."""

    shards: dict[ShardKey, tuple[int, int]] = field(default_factory=dict[ShardKey, tuple[int, int]])
    memory_bytes: int = 1 << 30

    def allocate(self, rank: int, file_bytes: int) -> int:
        if file_bytes > self.memory_bytes:
            raise OSError(12, f"no memory for {file_bytes} bytes")
        fd = os.memfd_create(f"received-{rank}")
        os.posix_fallocate(fd, 0, file_bytes)
        return fd

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        if (before := self.shards.pop(key, None)) is not None:
            os.close(before[0])
        self.shards[key] = (fd, size_bytes)

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        return self.shards.get(key)

    def add(self, key: ShardKey = KEY, size_bytes: int = 4711) -> int:
        """Write a new shard and return its descriptor, which the store owns."""
        fd = new_shard(key)
        self.put(key, fd, size_bytes)
        return fd

    def close(self) -> None:
        for fd, _ in self.shards.values():
            os.close(fd)


@dataclass
class Agent:
    """One agent with its engine and its store."""

    engine: TransferEngine
    address: TransferAddress
    store: Shards


@contextlib.asynccontextmanager
async def agents(count: int = 1) -> AsyncIterator[list[Agent]]:
    """Run agents in this process."""
    made = [_agent() for _ in range(count)]
    try:
        yield made
    finally:
        for agent in made:
            await agent.engine.close()
            agent.store.close()


def new_shard(key: ShardKey = KEY, content: Mapping[str, bytes] | None = None, plan: BufferLayout = PLAN) -> int:
    """Return a memory file with a shard of random content."""
    fd = os.memfd_create("shard")
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        place = {"generation": key.generation, "step": key.step, "rank": key.rank}
        buffer.begin(plan, {"seed": 7}, world_size=2, layout_hash="0123456789abcdef", **place)
        for entry in plan.entries:
            with buffer.view(entry) as view:
                view[:] = (content or {}).get(entry.name) or os.urandom(entry.nbytes)
        buffer.commit(Pin.MIRROR)
    return fd


def content(fd: int) -> bytes:
    """Return all bytes of a memory file."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until a function returns true."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # threads change what it checks
            await asyncio.sleep(0.01)


def _agent() -> Agent:
    store = Shards()
    engine = TransferEngine(store)
    return Agent(engine, engine.open("127.0.0.1", bind_listener("127.0.0.1", None)), store)
