"""Results of a probe's ranks, for tests that have no ranks."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease
from regroup.service.store.store import Store
from tests.support.inputs.job_events import event_data

LINK = (1e9, 1e-4)
"""Bytes per second, and seconds per message, of a link that a test does not set."""


def probe_result(
    nodes: int,
    ranks: int = 2,
    *,
    kind: str = "cpu",
    links: Mapping[tuple[int, int], tuple[float, float]] | None = None,
    flops: Sequence[float] = (),
    wrong: Sequence[int] = (),
    fabric: str = "",
) -> dict[str, Any]:
    """Return a result of `workers/probe/run.py` on this number of nodes and ranks per node.

    Args:
        links: bytes per second and seconds per message of pairs of nodes; `LINK` by default.
        flops: FLOP/s of each node; 5e10 by default.
        wrong: ranks that got a wrong sum.
        fabric: name of the fabric that joins the devices of all nodes.
    """
    pairs = [[a, b, *(links or {}).get((a, b), LINK)] for a, b in combinations(range(nodes), 2)]
    return {
        "device": "x86_64" if kind == "cpu" else "NVIDIA H100 80GB HBM3",
        "kind": kind,
        "torch": "2.13.0",
        "nodes": [
            {
                "ranks": list(range(ranks * at, ranks * (at + 1))),
                "flops": {"fp32": flops[at] if flops else 5e10},
                "memory_bytes_s": 8e9,
                "inside": {"numa": [[0, "0-1"]], "gpus": [], "fabric": fabric},
            }
            for at in range(nodes)
        ],
        "matmuls": [["fp32", 64, 1e10], ["fp32", 512, 5e10]],
        "collectives": [["all_reduce", "all", nodes * ranks, 1 << 20, 4e-3, list(wrong)]],
        "rings": {"all": [nodes * ranks, 0.5e9, 2e-4], "node": [ranks, 3e9, 5e-5]},
        "pairs": pairs,
        "blocks": [],
        "steps": [],
        "alone_flops": None,
    }


async def end(store: Store, lease: Lease, job_id: str, result: dict[str, Any], nodes: Sequence[str]) -> None:
    """End a queued probe with this result, on nodes of these names. The last letter of a name is that of its rack."""
    slots = [(f"{name}-id", name, each["ranks"]) for name, each in zip(nodes, result["nodes"], strict=True)]
    reservations = [
        Allocation(
            job_id, AllocationKind.RESERVATION, f"regroup-reservation:{job_id}:{name}", node_id,
            {
                "ranks": len(ranks), "device_kind": "cpu", "cpus": len(ranks), "memory_bytes": 0, "name": name,
                "domain": ["", "", f"rack-{name[-1]}", ""],
            },
        )
        for node_id, name, ranks in slots
    ]  # fmt: skip
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await store.apply(lease, placed, now=500.0, allocate=reservations)
    await store.apply(lease, check_transition(job_id, JobState.PLACING, JobState.STARTING, Reason.RESERVED), now=501.0)
    places = [{"rank": rank, "node_id": node_id, "node_name": name} for node_id, name, ranks in slots for rank in ranks]
    formed = {"number": 1, "layout": {}, "world_size": len(places), "ranks": places, "start_step": 0, "cause": "start"}
    reported: list[tuple[str, dict[str, Any]]] = [
        ("generation", {**formed, "restore": {"source": "none"}}),
        ("state", {"state": "RUNNING", "reason": "first_step"}),
        ("result", {"step": 4, "probe": result}),
        ("state", {"state": "DRAINING", "reason": "completed"}),
        ("state", {"state": "SUCCEEDED", "reason": "completed"}),
    ]
    events = [
        SupervisorEvent(
            number, f"{kind}:{number}", kind, 1, 1000.0 + number, event_data(kind, 1, 1000.0 + number, data)
        )
        for number, (kind, data) in enumerate(reported, 1)
    ]
    await store.ingest(lease, job_id, "boot", events, {})
