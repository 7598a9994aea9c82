"""Jobs that change their ranks or their layout: bytes that moved between nodes, and the memory of each node."""

import time
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

CHANGES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ranks": {"fsdp4 to fsdp6": {"dp": 6}, "fsdp6 to fsdp3": {"dp": 3}, "fsdp3 to fsdp4": {"dp": 4}},
    "layout": {
        "fsdp4 to tp2 x fsdp2": {"dp": 2, "tp": 2},
        "tp2 x fsdp2 to pp2 x fsdp2": {"dp": 2, "tp": 1, "pp": 2},
    },
}
"""Name of a job → its changes, one after the other: name → the new degrees."""
_STEPS_BEFORE = 3
_STEPS_AFTER = 5
"""Steps after each change: the old shards are released after two of them, and then more buffers get their memory."""
_SLOTS = 3
_PATIENCE_S = 300.0
_BATCH = 12
_SEQUENCE = 16
"""Few tokens: no figure depends on the duration of a step. Tensor parallelism splits a row."""
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
    """Most memory of shards, buffers and staged parts, from the change on until the next one or the last step."""


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
        minimum = sum(node.minimum_bytes for node in self.nodes.values())
        return received / minimum if minimum else float(received > 0) + 1

    @property
    def node_memory_over_own(self) -> float:
        """Memory relative to old and new shards, of the node that is worst."""
        return max(node.peak_bytes / node.own_bytes for node in self.nodes.values())


def run(state_gb: float, text: Path, folder: Path) -> list[Reshard]:
    """Run the jobs and print each step. No process remains.

    Raises:
        TrialError: a job did not succeed, or did not take its state from memory.
    """
    with run_server(folder, slots=_SLOTS) as server:
        idle = settle()
        return [each for name in CHANGES for each in _run(server, state_gb, text, name, idle)]


def _run(server: Server, state_gb: float, text: Path, name: str, idle: bool) -> list[Reshard]:
    changes = CHANGES[name]
    steps = _STEPS_BEFORE + (len(changes) + 1) * _STEPS_AFTER
    workload = replace(workload_of(state_gb, text), steps=steps, global_batch=_BATCH, sequence=_SEQUENCE)
    layout = {"dp": {"min": 2, "target": 4, "max": 6}, "data_parallel": "fsdp"}
    # A mirror would be a further shard on each node.
    spec = workload.job_spec("reshard", layout=layout, snapshot={"every_steps": 1, "mirror": "off"})
    spec["workload"]["model"]["vocab_size"] = _VOCABULARY
    spec["workload"]["data"]["tokenizer"] = "byte"
    with sampled(server.processes()) as memory:
        try:
            job = server.client.submit(spec).id
            _go_through(server, job, changes)
        except RegroupError as error:
            raise TrialError(f"{name}: {error}") from error
        done = server.finish(job)
    names = {node.name: node.node_id or "" for node in server.client.nodes()}
    events = [each.model_dump(mode="json") for each in server.client.events(job)]
    return read_job(list(changes), done, events, server.steps(job), memory, names, idle)


def _go_through(server: Server, job: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Make each change when the job has trained for some steps since the one before."""
    waiting, due = list(changes.items()), _STEPS_BEFORE
    for row in server.client.steps(job, follow=True):
        print(f"  reshard: step {row.step}, generation {row.generation}, {row.duration_s:.1f} s", flush=True)
        if row.step < due or not waiting:
            continue
        change, degrees = waiting.pop(0)
        begun_s = time.monotonic()
        server.client.resize(job, **degrees)
        server.client.wait_for_resize(job, timeout_s=_PATIENCE_S)
        due = row.step + _STEPS_AFTER
        print(f"  reshard: {change} in {time.monotonic() - begun_s:.1f} s", flush=True)


def read_job(
    changes: Sequence[str],
    job: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    memory: NodeMemory,
    node_ids: Mapping[str, str],
    idle: bool,
) -> list[Reshard]:
    """Compute the figures of a finished job that was resized several times.

    Args:
        changes: names of its changes, in their order.
        job: job as the API shows it.
        events: events of the job.
        rows: its committed steps.
        memory: samples of the nodes.
        node_ids: name of a node → its id.
        idle: True if the machine was idle before.

    Raises:
        TrialError: a change did not take the state from memory.
    """
    actions = [each["recovery_action"] for each in job["incidents"]]
    if actions != ["resize"] * len(changes):
        raise TrialError(f"{len(changes)} resizes were planned, but the job shows {actions or 'no incident'}")
    found: list[Reshard] = []
    for change, incident in zip(changes, job["incidents"], strict=True):
        since_s, until_s = incident["times"]["fault_s"], _before_release_s(rows, incident["times"]["first_step_s"])
        restores = {
            each["data"]["node"]: each["data"]
            for each in events
            if each["data"].get("kind") == "state_restored" and since_s <= each["time_s"] <= until_s
        }
        if not restores:
            raise TrialError(f"{change}: the state was planned to come from memory, but no node restored it")
        nodes = {
            name: ReshardedNode(
                data["received_bytes"],
                data["minimum_bytes"],
                data["own_bytes"],
                memory.peak_bytes(node_ids[name], since_s, until_s),
            )
            for name, data in restores.items()
        }
        seconds = max(data["seconds"] for data in restores.values())
        found.append(Reshard(change, job["parameter_count"] * BYTES_PER_PARAMETER, nodes, seconds, idle))
    return found


def _before_release_s(rows: Sequence[Mapping[str, Any]], first_step_s: float) -> float:
    """Return a time after the first snapshot of the new ranks and before they release the old shards.

    They release them near the end of their second step. Then each rank gets memory for its further snapshots, as at any
    other time of a job.

    Raises:
        TrialError: the job ended before the second step.
    """
    times_s = [row["time_s"] for row in rows if row["time_s"] >= first_step_s]
    if len(times_s) < 2:
        raise TrialError(f"the job took {len(times_s)} steps after a change; at least two are needed")
    return (times_s[0] + times_s[1]) / 2
