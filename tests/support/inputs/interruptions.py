"""Jobs with incidents at known times, in a store: for reports over all jobs."""

import itertools
from collections.abc import Mapping
from typing import Any

from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store
from tests.support.inputs.held_devices import allocate, reservation, submit
from tests.support.inputs.job_events import event_data

_PHASES = ("fault_s", "seen_s", "dead_s", "decided_s", "formed_s", "restored_s", "first_step_s")
_NAMES = ("detect", "teardown", "decide", "form", "restore", "first_step")
_sequence = itertools.count(1)


async def submit_running(
    store: Store, lease: Lease, job_id: str, *, now: float, ranks: int = 4, goodput: float | None = None, **fields: Any
) -> None:
    """Submit a job that holds `ranks` devices since `now`, in its first generation."""
    await submit(store, job_id, now=now, **fields)
    await allocate(store, lease, job_id, reservation(job_id, "a", ranks), now=now)
    place = {"rank": 0, "node_id": "n0", "node_name": "n0"}
    layout = {"dp_replicate": 1, "dp_shard": ranks, "cp": 1, "tp": 1, "pp": 1}
    formed = {"number": 1, "layout": layout, "world_size": ranks, "ranks": [place], "start_step": 0}
    data = {**formed, "restore": {"source": "none"}, "cause": "start"}
    await _ingest(store, lease, job_id, "generation", now, data, {} if goodput is None else {"goodput": goodput})


async def interrupt(
    store: Store,
    lease: Lease,
    job_id: str,
    at_s: float,
    *phases_s: float,
    reason: str = "rank_exit",
    cause: str = "rank 1 exited",
    steps_lost: int | None = 0,
) -> None:
    """Record an incident of the first generation. `phases_s` are the durations of the phases that are complete."""
    times = dict(zip(_PHASES, itertools.accumulate(phases_s, initial=at_s), strict=False))
    durations = dict(zip(_NAMES, phases_s, strict=False))
    if len(phases_s) == len(_NAMES):
        durations["total"] = sum(phases_s)
    data = {
        "id": f"i{next(_sequence)}", "cause": cause, "reason": reason, "generation": 1, "next_generation": 2,
        "at_step": 0, "steps_lost": steps_lost, "times": times, "durations": durations, "evidence_bytes": 0,
    }  # fmt: skip
    await _ingest(store, lease, job_id, "incident", at_s, data, {})


async def record_node_faults(store: Store, lease: Lease, node: str, at_s: float, *kinds: NodeEventKind) -> None:
    """Record faults of a node."""
    faults = [NodeEvent(node, kind, at_s + number, f"{node}:{next(_sequence)}") for number, kind in enumerate(kinds)]
    await store.nodes.record_faults(lease, faults, forget_before_s=0.0)


async def _ingest(
    store: Store, lease: Lease, job_id: str, kind: str, at_s: float, data: dict[str, Any], status: Mapping[str, Any]
) -> None:
    seq = next(_sequence)
    event = SupervisorEvent(seq, f"{kind}:{seq}", kind, 1, at_s, event_data(kind, 1, at_s, data))
    await store.ingest(lease, job_id, "boot", [event], dict(status))
