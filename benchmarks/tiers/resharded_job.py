"""Jobs that change their ranks or their layout: bytes that moved between nodes, and the memory of each node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.tiers.node_memory import NodeMemory, sampled
from benchmarks.tiers.recovered_job import BYTES_PER_PARAMETER, workload_of
from benchmarks.trials.trial import TrialError
from regroup.service.domain.errors import RegroupError

CHANGES: Mapping[str, Any] = {"fsdp4 to fsdp3": {"dp": 3}, "fsdp4 to tp2 x fsdp2": {"dp": 2, "tp": 2}}
"""Name → the new degrees. Each change is that of a job of its own."""
_STEPS_BEFORE = 3
_STEPS_AFTER = 5
"""Steps after the change: the old shards are released after two of them, and then more buffers get their memory."""
_PATIENCE_S = 600.0
_BATCH = 12
_VOCABULARY = 260
"""Tensor parallelism needs a multiple of its degree."""


@dataclass(frozen=True)
class ReshardedNode:
    """Figures of one node."""

    received_bytes: int
    minimum_bytes: int
    """Bytes that the planner found needed and not held there."""
    own_bytes: int
    """Old and new shards."""
    peak_bytes: int
    """Most memory of shards, buffers and staged parts, from the change on until the last step."""


@dataclass(frozen=True)
class Reshard:
    """Figures of one change."""

    change: str
    state_bytes: int
    nodes: Mapping[str, ReshardedNode]
    seconds: float
    """From the request of all ranks of a node to its state in place, on the slowest node."""
    machine_was_idle: bool

    @property
    def bytes_over_minimum(self) -> float:
        """Bytes that moved between the nodes, relative to the least that the new ranks need."""
        received = sum(node.received_bytes for node in self.nodes.values())
        return received / sum(node.minimum_bytes for node in self.nodes.values())

    @property
    def node_memory_over_own(self) -> float:
        """Memory relative to old and new shards, of the node that is worst."""
        return max(node.peak_bytes / node.own_bytes for node in self.nodes.values())


def run(state_gb: float, text: Path, folder: Path) -> list[Reshard]:
    """Run a job for each change. No process remains.

    Raises:
        TrialError: a job did not succeed, or did not take its state from memory.
    """
    with run_server(folder) as server:
        idle = settle()
        return [_run(server, state_gb, text, change, idle) for change in CHANGES]


def _run(server: Server, state_gb: float, text: Path, change: str, idle: bool) -> Reshard:
    whole = workload_of(state_gb, text)
    # Fewer tokens of each row, because there are more rows. Tensor parallelism splits a row.
    short = max(8, whole.sequence * whole.global_batch // _BATCH // 8 * 8)
    steps = _STEPS_BEFORE + _STEPS_AFTER + 2
    workload = replace(whole, steps=steps, global_batch=_BATCH, sequence=short)
    layout = {"dp": {"min": 2, "target": 4, "max": 4}, "data_parallel": "fsdp"}
    # A mirror would be a further shard on each node.
    spec = workload.job_spec("reshard", layout=layout, snapshot={"every_steps": 1, "mirror": "off"})
    spec["workload"]["model"]["vocab_size"] = _VOCABULARY
    spec["workload"]["data"]["tokenizer"] = "byte"
    with sampled(server.processes()) as memory:
        try:
            job = server.client.submit(spec).id
            for step in server.client.steps(job, follow=True):
                if step.step == _STEPS_BEFORE:
                    break
            server.client.resize(job, **CHANGES[change])
            server.client.wait_for_resize(job, timeout_s=_PATIENCE_S)
        except RegroupError as error:
            raise TrialError(f"{change}: {error}") from error
        done = server.finish(job)
    names = {node.name: node.node_id or "" for node in server.client.nodes()}
    events = [each.model_dump(mode="json") for each in server.client.events(job)]
    return read_job(change, done, events, server.steps(job), memory, names, idle)


def read_job(
    change: str,
    job: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    memory: NodeMemory,
    node_ids: Mapping[str, str],
    idle: bool,
) -> Reshard:
    """Compute the figures of a finished job that was resized once.

    Args:
        change: name of the change.
        job: job as the API shows it.
        events: events of the job.
        rows: its committed steps.
        memory: samples of the nodes.
        node_ids: name of a node → its id.
        idle: True if the machine was idle before.

    Raises:
        TrialError: the job was not resized from memory.
    """
    actions = [each["recovery_action"] for each in job["incidents"]]
    restores = {each["data"]["node"]: each["data"] for each in events if each["data"].get("kind") == "state_restored"}
    if actions != ["resize"] or not restores:
        raise TrialError(f"{change}: one resize from memory was planned, but the job shows {actions or 'no incident'}")
    since_s = job["incidents"][0]["times"]["fault_s"]
    until_s = rows[-1]["time_s"]  # the last checkpoint, which is staged as well, comes after it
    nodes: dict[str, ReshardedNode] = {}
    for name, found in restores.items():
        peak_bytes = memory.peak_bytes(node_ids[name], since_s, until_s)
        nodes[name] = ReshardedNode(found["received_bytes"], found["minimum_bytes"], found["own_bytes"], peak_bytes)
    seconds = max(found["seconds"] for found in restores.values())
    return Reshard(change, job["parameter_count"] * BYTES_PER_PARAMETER, nodes, seconds, idle)
