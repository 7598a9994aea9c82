"""A job on this machine without Ray, controller and supervisor: the agent's job host, and the ranks' own messages.

The configuration of agent and ranks is the one that a supervisor sends, so ranks run as in a cluster.
"""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.agent import token_data
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.snapshots.shard_check import OpenShards
from regroup.workers.contract.agent_records import NodeDescription
from regroup.workers.contract.messages import (
    Done,
    Exited,
    Failed,
    FaultDue,
    Join,
    Joined,
    Message,
    Restore,
    Restored,
    StepRow,
    from_json,
)

_POLL_S = 0.002
_NODE = "bare"
_Kind = TypeVar("_Kind", Joined, Restored, StepRow, Done, Failed, Exited)


class JobFailedError(Exception):
    """A rank failed although no fault was injected, or a message did not arrive in time."""


class BareJob:
    """One job on one node. Use `started`."""

    def __init__(self, spec: Mapping[str, Any], ranks: int, layout: Mapping[str, int], folder: Path) -> None:
        """Args:
        spec: a job spec.
        ranks: number of ranks, all on this node.
        layout: degrees of the axes.
        folder: folder for storage and logs.
        """
        node = {"node_id": _NODE, "name": _NODE, "address": "127.0.0.1", "ranks": ranks, "devices": [0] * ranks}
        (folder / "logs").mkdir(parents=True)
        self._job = JobConfig.from_json({
            "job_id": uuid.uuid4().hex[:16], "spec": dict(spec), "nodes": [node], "layout": dict(layout),
            "storage_uri": f"file://{folder}/storage", "datasets_uri": f"file://{folder}/datasets",
        })  # fmt: skip
        (config,) = self._job.agent_configs().values()
        self._ranks, self._dataset = ranks, dict[str, Any]()
        self.messages: list[Message] = []
        self.host = JobHost(replace(config, log_dir=str(folder / "logs")), self._refuse_fault, self._receive)
        self.generation = 0
        self.node: NodeDescription | None = None
        """Description of the node, including how it starts ranks. `prepare` sets it."""

    async def prepare(self) -> None:
        """Start the zygote and tokenize the data."""
        self.node = await self.host.prepare()
        if (sources := self._job.data_sources) is not None:
            assert sources.tokens is not None, "a bare job trains on token files"
            call = (self.host.acquire_zygote(), self.host.config, self.host.scratch, sources.tokens, self.host.note)
            self._dataset = await token_data.prepare(*call)
            self._dataset = await asyncio.to_thread(
                token_data.fetch, self.host.config, self.host.scratch, self._dataset
            )

    async def form(self, restore: Restore | None = None) -> float:
        """Start the ranks of the next generation; return the Unix time in seconds at which the start began."""
        begun_s = time.time()
        self.generation += 1
        host, port = self.host.start_store(self.generation)
        joins = [self._join(rank, host, port, restore or Restore("none")) for rank in range(self._ranks)]
        await self.host.form_ranks(joins, [0] * self._ranks, {})
        return begun_s

    async def wait_for(self, kind: type[_Kind], count: int = 1, within_s: float = 120.0) -> list[_Kind]:
        """Return the first `count` messages of a kind in this generation.

        Raises:
            JobFailedError: a rank failed, or the time has passed.
        """
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            found = self._of(kind)
            if len(found) >= count:
                return found[:count]
            if kind is not Failed and (failures := self._of(Failed)):
                raise JobFailedError(f"{failures[0].error.kind}: {failures[0].error.message}{self._output()}")
            await asyncio.sleep(_POLL_S)
            self._receive()
        raise JobFailedError(f"no {count} × {kind.__name__} within {within_s:g} s{self._output()}")

    def kill(self, rank: int) -> float:
        """Send SIGKILL to a rank; return the Unix time in seconds."""
        pid = self.host.pids().ranks[rank]
        assert pid is not None, f"rank {rank} runs"
        killed_s = time.time()
        os.kill(pid, signal.SIGKILL)
        return killed_s

    async def end_ranks(self) -> None:
        """Kill the ranks of this generation, with proof of death."""
        stuck = await self.host.kill_ranks(self.generation)
        if stuck:
            raise JobFailedError(f"processes {[*stuck]} outlived SIGKILL")

    def newest_snapshot(self) -> Restore:
        """Return the newest step of which every rank's state is complete in memory, as a source to restore from."""
        steps: dict[int, dict[int, int]] = {}
        for shard in self._open_shards().describe():
            steps.setdefault(shard.step, {})[shard.rank] = shard.generation
        whole = [step for step, ranks in steps.items() if len(ranks) == self._ranks]
        if not whole:
            raise JobFailedError(f"no step is complete in memory: {steps}")
        step = max(whole)
        generation = max(steps[step].values())
        if damaged := self._open_shards().verify(generation, step)[1]:
            raise JobFailedError(f"snapshots of step {step} fail their checksum: {damaged}")
        return Restore("memory", step, generation)

    def _open_shards(self) -> OpenShards:
        return self.host.buffers.check.open(self.host.buffers.fds())

    def _join(self, rank: int, host: str, port: int, restore: Restore) -> Join:
        return replace(
            self._job.join_message(), generation=self.generation, rank=rank, world_size=self._ranks, local_rank=rank,
            local_world_size=self._ranks, node_rank=0, node_count=1, layout=self._job.layout.degrees,
            store_host=host, store_port=port, restore=restore, dataset=self._dataset, node_name=_NODE,
            node_devices=(0,) * self._ranks,
        )  # fmt: skip

    def _of(self, kind: type[_Kind]) -> list[_Kind]:
        return [
            message for message in self.messages if isinstance(message, kind) and message.generation == self.generation
        ]

    def _output(self) -> str:
        texts: list[str] = []
        for rank in range(self._ranks):
            path = self.host.log_files.rank(self.generation, rank, "stderr")
            if path.exists() and (text := path.read_text(errors="replace")[-1500:]):
                texts.append(f"\nrank {rank}:\n{text}")
        return "".join(texts)

    async def _refuse_fault(self, due: FaultDue) -> bool:
        return False

    def _receive(self) -> None:
        batch = self.host.outbox.next_batch()
        self.messages += [from_json(message) for _, message in batch]
        if batch:
            self.host.outbox.acknowledge("bare", batch[-1][0], batch[-1][0])


@asynccontextmanager
async def started(
    spec: Mapping[str, Any], folder: Path, *, ranks: int = 1, layout: Mapping[str, int] | None = None
) -> AsyncGenerator[BareJob]:
    """Yield a job whose zygote is ready. No process outlives the block."""
    job = BareJob(spec, ranks, layout or {"dp_shard": ranks}, folder)
    try:
        await job.prepare()
        yield job
    finally:
        await job.host.close()
