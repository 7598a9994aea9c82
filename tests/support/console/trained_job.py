"""A job that trained on eight ranks in two racks, with predictions, an incident and checkpoints, for pages of a job."""

from typing import Any

from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node
from tests.support.inputs.stored_checkpoints import write_checkpoint

LAYOUT = {"dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 2, "pp": 1}
SPEC: dict[str, Any] = {
    "name": "gpt",
    "workload": {
        "kind": "builtin",
        "model": {"dim": 64, "layers": 4, "heads": 4, "vocab_size": 264},
        "data": {"train": ["/data/*.txt"]},
    },
    "layout": {"dp": {"min": 1, "target": 4, "max": 8}, "tp": 2},
    "training": {"global_batch": 16, "micro_batch": 1, "sequence": 64, "steps": 1000},
}
STEPS = 12
"""Number of committed steps; steps 9 and 10 of the first generation were repeated."""


async def trained_job(live: Any, **fields: Any) -> dict[str, Any]:
    """Submit the job, report its history, and return it as the API shows it."""
    for number in range(4):
        labels = {DEFAULT_LABELS[Level.RACK]: f"r{number // 2 + 1}"}
        live.cluster.add_node(
            Node(f"{number}" * 40, f"node-{number}", f"10.0.0.{number}", labels=labels, cpus=4, free_cpus=4,
                 memory_bytes=8 * 10**9)
        )  # fmt: skip
    job = await live.submit(**{**SPEC, **fields})
    await live.run(job["id"])
    await live.report(job["id"], ("generation", 2, formed(2, 0)))
    await live.report(job["id"], *(step(2, number) for number in range(1, 11)))
    saved = [write_checkpoint(job["storage_uri"], number, generation=2) for number in (4, 8)]
    await live.report(job["id"], *(("checkpoint", 2, data) for data in saved))
    incident = {"id": "i1", "cause": "SIGKILL", "reason": "rank_exit", "rank": 5, "generation": 2, "at_step": 10}
    durations = {"detect": 0.1, "total": 3.2}
    await live.report(
        job["id"],
        ("incident", 2, {**incident, "times": {}, "durations": durations, "recovery_action": "disk", "steps_lost": 2}),
        ("generation", 3, formed(3, 8)),
        *(step(3, number) for number in range(9, STEPS + 1)),
    )
    record = {"device": "cpu", "ranks": 8, "probe_job_id": None, "step_s": 0.4, "peak_bytes": 2e9, "bubble": None}
    await live.store.predictions.put(live.lease, job["id"], 3, record)
    answer = await live.http.get(f"/v1/jobs/{job['id']}")
    return answer.json()


def formed(number: int, start_step: int) -> dict[str, Any]:
    """Return the data of a generation of eight ranks on four nodes."""
    ranks = [
        {"rank": rank, "node_id": f"{rank // 2}" * 40, "node_name": f"node-{rank // 2}",
         "address": f"10.0.0.{rank // 2}", "local_rank": rank % 2, "device": rank % 2}
        for rank in range(8)
    ]  # fmt: skip
    about = {"restore": {"source": "checkpoint" if start_step else "none"}, "cause": "rank_exit"}
    return {
        "number": number, "layout": LAYOUT, "world_size": 8, "ranks": ranks, "start_step": start_step, **about,
    }  # fmt: skip


def step(generation: int, number: int) -> tuple[str, int, dict[str, Any]]:
    """Return a committed step of 16 samples. Those after a checkpoint waited for its snapshot."""
    row = {"duration_s": 0.5, "loss": 3.0 - number / 10, "tokens": 1024, "samples": 16, "samples_hash": number}
    more = {"stall_s": 0.02 if number in (5, 9) else 0.0, "extra": {"peak_bytes": 1.6e9}}
    return "step", generation, {**row, **more, "step": number, "generation": generation}
