"""A job with a hang, a resize and a killed rank, as its supervisor would report it; for all that shows the course."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.ports.sync import SupervisorEvent
from tests.support.inputs.job_events import event_data

NODES = ("a", "b", "c", "d")
HANG, KILL = 1, 2
"""Numbers of the incidents."""
OUTLIER_RANK = 3
LAST_STEP = 70
_WAITING = """Thread 0x00007f{0:04x}aa (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait
Current thread 0x00007f{0:04x}bb (most recent call first):
  File "/work/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/work/train.py", line 88 in step
"""
_READING = """Current thread 0x00007f{0:04x}bb (most recent call first):
  File "/work/data.py", line 31 in read_batch
  File "/work/train.py", line 71 in step
"""


@dataclass
class EventfulJob:
    """Writes the course of a job to a live server, in parts. Times are seconds since its submission."""

    live: Any
    id: str
    start_s: float
    storage_uri: str
    _sequence: Any = field(default_factory=lambda: itertools.count(1))

    async def train(self) -> None:
        """Start with four ranks, train for 20 steps, write a checkpoint and two mirrors."""
        for after_s, source, target, reason in (
            (1.0, JobState.QUEUED, JobState.PLACING, Reason.PLACED),
            (1.5, JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        ):
            change = check_transition(self.id, source, target, reason)
            await self.live.store.apply(self.live.lease, change, now=self.start_s + after_s)
        await self.report(3.0, 1, "generation", generation(1, 4, 0, {"kind": "none"}, "start"))
        await self.state(4.0, "RUNNING", "first_step")
        await self.steps(1, 1, 20, 4.0, 0.25)
        await self.checkpoint(6.6, 1, 10)
        for after_s, step in ((5.2, 4), (8.8, 18)):
            await self.report(after_s, 1, "mirror", {"step": step})

    async def hang(self) -> None:
        """Report a hang of rank 3; continue generation 2 at step 18 from mirrors, and train to step 40."""
        times = {"fault_s": 9.2, "seen_s": 12.2, "dead_s": 12.5, "decided_s": 12.6}
        evidence = {"kind": "hang", "outlier_ranks": [OUTLIER_RANK], "ranks": {}}
        cause = {
            "id": "i1",
            "cause": "no rank moved on for 3 s",
            "reason": "hang",
            "evidence": evidence,
            "rank": OUTLIER_RANK,
        }
        base = {**cause, "node_id": "n1", "generation": 1, "at_step": 20}
        await self.incident(12.2, 1, base, times)
        await self.state(12.2, "RECOVERING", "hang", "no rank moved on for 3 s")
        restore = {"kind": "memory", "step": 18, "fetch": [[3, "n0"]], "world_size": 0}
        await self.report(13.2, 2, "generation", generation(2, 4, 18, restore, "hang"))
        await self.state(14.0, "RUNNING", "first_step")
        await self.steps(2, 19, 40, 14.0, 0.25)
        times |= {"formed_s": 13.2, "restored_s": 13.6, "first_step_s": 14.0}
        after = {"next_generation": 2, "recovery_action": "respawn", "steps_lost": 2, "evidence_bytes": 4000}
        self.store_evidence()
        await self.incident(14.1, 1, {**base, **after}, times)

    async def resize(self) -> None:
        """Double the ranks as a user; train generation 3 to step 60 and write a checkpoint."""
        layout = {"dp_replicate": 1, "dp_shard": 8, "cp": 1, "tp": 1, "pp": 1}
        answer = await self.live.http.post(f"/v1/jobs/{self.id}/resize", json={"dp": 8, "reason": "more nodes arrived"})
        assert answer.status_code in (200, 202), (answer.text, layout)
        await self.state(19.6, "RESIZING", "resized", "from 4 to 8 ranks")
        restore = {"kind": "memory", "step": 40, "world_size": 4, "fetch": [[0, "n0"]]}
        await self.report(20.0, 3, "generation", generation(3, 8, 40, restore, "resized"))
        await self.state(21.0, "RUNNING", "first_step")
        await self.steps(3, 41, 60, 21.0, 0.2)
        await self.checkpoint(23.2, 3, 50)

    async def kill(self) -> None:
        """Report that rank 1 was killed; continue generation 4 from the checkpoint of step 50."""
        times = {"fault_s": 25.1, "seen_s": 25.12, "dead_s": 25.3, "decided_s": 25.3, "formed_s": 25.9}
        times |= {"restored_s": 26.6, "first_step_s": 27.0}
        base = {"id": "i2", "cause": "rank 1 was killed by signal 9", "reason": "rank_exit", "rank": 1, "node_id": "n0"}
        base |= {"generation": 3, "at_step": 60, "evidence_bytes": 0}
        await self.incident(25.2, 3, base, dict(list(times.items())[:4]))
        await self.state(25.2, "RECOVERING", "rank_exit", "rank 1 was killed by signal 9")
        restore = {"kind": "checkpoint", "step": 50, "uri": "file:///s/50"}
        await self.report(25.9, 4, "generation", generation(4, 8, 50, restore, "rank_exit"))
        await self.state(27.0, "RUNNING", "first_step")
        await self.steps(4, 51, LAST_STEP, 27.0, 0.2)
        await self.incident(27.1, 3, {**base, "next_generation": 4, "recovery_action": "disk", "steps_lost": 10}, times)

    async def succeed(self) -> None:
        """End all ranks with success."""
        await self.state(31.5, "SUCCEEDED", "completed")

    async def state(self, after_s: float, name: str, reason: str, message: str = "") -> None:
        await self.report(after_s, 0, "state", {"state": name, "reason": reason, "message": message})

    async def steps(self, number: int, first: int, last: int, after_s: float, each_s: float) -> None:
        rows = [
            (after_s + index * each_s, {"duration_s": each_s, "loss": 2.0, "tokens": 64, "step": step})
            for index, step in enumerate(range(first, last + 1))
        ]
        events = [self._event(time_s, number, "step", row) for time_s, row in rows]
        await self.live.store.ingest(self.live.lease, self.id, "boot", events, {})

    async def checkpoint(self, after_s: float, number: int, step: int) -> None:
        data = {"step": step, "generation": number, "uri": f"file:///s/{step}", "size_bytes": 5_000_000, "files": 4}
        await self.report(after_s, number, "checkpoint", {**data, "duration_s": 0.8})

    async def incident(self, after_s: float, number: int, data: dict[str, Any], times: dict[str, float]) -> None:
        since = {name: self.start_s + value for name, value in times.items()}
        names = ("fault_s", "seen_s", "dead_s", "decided_s", "formed_s", "restored_s", "first_step_s")
        phases = zip(("detect", "teardown", "decide", "form", "restore", "first_step"), names, names[1:], strict=False)
        durations = {phase: times[end] - times[start] for phase, start, end in phases if end in times}
        if "first_step_s" in times:
            durations["total"] = times["first_step_s"] - times["fault_s"]
        await self.report(after_s, number, "incident", {**data, "times": since, "durations": durations})

    async def report(self, after_s: float, number: int, kind: str, data: dict[str, Any]) -> None:
        events = [self._event(after_s, number, kind, data)]
        await self.live.store.ingest(self.live.lease, self.id, "boot", events, {})

    def store_evidence(self) -> None:
        """Write what the agents of both nodes saw of the hang."""
        folder = Path(urlsplit(self.storage_uri).path) / "evidence" / "i1"
        folder.mkdir(parents=True)
        for index, node in enumerate(NODES[:2]):
            ranks = {str(rank): _seen(rank) for rank in (2 * index, 2 * index + 1)}
            host = {"load": [0.4, 0.3, 0.3], "cpus": 4}
            seen = {"node": node, "node_id": f"n{index}", "generation": 1, "captured_s": 1.0, "gpus": [], "host": host}
            (folder / f"n{index}.json").write_text(json.dumps({**seen, "ranks": ranks}))

    def _event(self, after_s: float, number: int, kind: str, data: dict[str, Any]) -> SupervisorEvent:
        sequence, time_s = next(self._sequence), self.start_s + after_s
        return SupervisorEvent(
            sequence, f"{kind}:{sequence}", kind, number, time_s, event_data(kind, number, time_s, data)
        )


async def submit_eventful_job(live: Any, name: str = "eventful") -> EventfulJob:
    """Submit the job; nothing has happened to it yet."""
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": LAST_STEP}
    made = await live.submit(name=name, training=training, layout={"dp": {"min": 1, "max": 8, "target": 4}})
    return EventfulJob(live, made["id"], made["created_at"], made["storage_uri"])


async def run_eventful_job(live: Any, name: str = "eventful") -> EventfulJob:
    """Submit the job, and report its whole course."""
    job = await submit_eventful_job(live, name)
    for part in (job.train, job.hang, job.resize, job.kill, job.succeed):
        await part()
    return job


def generation(number: int, ranks: int, start_step: int, restore: dict[str, Any], cause: str) -> dict[str, Any]:
    """Return the data of a generation with two ranks on each node."""
    places = [
        {
            "rank": rank,
            "node_id": f"n{rank // 2}",
            "node_name": NODES[rank // 2],
            "local_rank": rank % 2,
            "device": rank % 2,
        }
        for rank in range(ranks)
    ]
    layout = {"dp_replicate": 1, "dp_shard": ranks, "cp": 1, "tp": 1, "pp": 1}
    data = {"number": number, "layout": layout, "world_size": ranks, "ranks": places, "start_step": start_step}
    return {**data, "restore": restore, "cause": cause}


def _seen(rank: int) -> dict[str, Any]:
    is_outlier = rank == OUTLIER_RANK
    call = {
        "group": "world", "first_rank": 0, "title": "data", "name": "all_reduce", "sequence": 40 if is_outlier else 41,
        "shapes": [[1024]], "types": ["float32"], "is_over": is_outlier,
    }  # fmt: skip
    return {
        "step": 20, "phase": "data" if is_outlier else "backward", "stalled_s": 3.0, "exit_code": None, "error": None,
        "uses": {}, "was_inspected": True, "stacks": (_READING if is_outlier else _WAITING).format(rank),
        "pid": 100 + rank, "usual_s": 0.2, "collectives": [call], "stdout": f"hello from {rank}\n", "stderr": "",
    }  # fmt: skip
