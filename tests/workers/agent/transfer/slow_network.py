"""An agent's transfers and heartbeats in a process of its own, for one end of a slow network.

As a program: `slow_network.py ADDRESS`. It reads orders as lines of JSON from its standard input, and answers each with
a line: `listen`, `beat`, `add`, `put`, `get`, `beats`.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from regroup.service.supervisor.gang.liveness import HeartbeatListener
from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from tests.workers.agent.transfer.held_shards import Shards, new_shard


class _End:
    """One end: an agent, and a supervisor that listens for the heartbeats of the other end."""

    def __init__(self, address: str) -> None:
        self._address, self._store = address, Shards()
        self._engine = TransferEngine(self._store)
        self._heartbeats, self._times = HeartbeatSender(), list[float]()
        self._listening = HeartbeatListener(lambda _: self._times.append(time.monotonic()))

    async def listen(self) -> dict[str, Any]:
        served = self._engine.open(self._address, bind_listener(self._address, None))
        await self._listening.listen(self._address)
        assert self._listening.listener is not None
        return {"transfers": [served.host, served.port, served.token], "heartbeats": self._listening.listener.to_json()}

    async def beat(self, heartbeats: dict[str, Any]) -> dict[str, Any]:
        self._heartbeats.set_listener("other", heartbeats)
        self._task = asyncio.get_running_loop().create_task(self._heartbeats.send())
        return {}

    async def add(self, rank: int, nbytes: int) -> dict[str, Any]:
        plan = BufferLayout((Entry("weight", "uint8", (nbytes,), (0,), (nbytes,), nbytes),))
        key = ShardKey(rank, 1, 1)
        self._store.put(key, new_shard(key, plan=plan), nbytes)
        return {}

    async def put(self, transfers: list[Any], rank: int) -> dict[str, Any]:
        key = ShardKey(rank, 1, 1)
        fd, size_bytes = self._store.shards[key]
        started = time.monotonic()
        await self._engine.put(TransferAddress(*transfers), key, fd, size_bytes)
        return {"seconds": time.monotonic() - started, "ended": time.monotonic()}

    async def get(self, transfers: list[Any], rank: int) -> dict[str, Any]:
        started = time.monotonic()
        fd, _ = await self._engine.get([TransferAddress(*transfers)], ShardKey(rank, 1, 1), self._store.allocate)
        os.close(fd)
        return {"seconds": time.monotonic() - started, "ended": time.monotonic()}

    async def beats(self) -> dict[str, Any]:
        """Return the times of the heartbeats that arrived."""
        return {"times": self._times, "now": time.monotonic()}


async def _serve(address: str) -> None:
    loop, end = asyncio.get_running_loop(), _End(address)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set[asyncio.Task[None]]()

    async def obey(order: dict[str, Any]) -> None:
        number = order.pop("number")
        done = await getattr(end, order.pop("do"))(**order)
        print(json.dumps({"number": number, **done}), flush=True)

    print("ready", flush=True)
    while line := await reader.readline():
        task = loop.create_task(obey(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(lambda done: done.result())
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
