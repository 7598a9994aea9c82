"""Jobs with ranks, output and conditions, for tests of the pages of a job."""

from typing import Any

from regroup.service.domain.topology import Node

TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    step()\nValueError: bad batch'
)


def placed(world_size: int, per_node: int = 2, number: int = 2) -> tuple[str, int, dict[str, Any]]:
    """Return the event of a generation with ranks on several nodes."""
    ranks = [
        {
            "rank": rank, "node_id": f"n{rank // per_node}", "node_name": f"node-{rank // per_node}",
            "address": "127.0.0.1", "local_rank": rank % per_node, "device": rank % per_node,
        }
        for rank in range(world_size)
    ]  # fmt: skip
    data = {"number": number, "layout": {"dp_shard": world_size}, "world_size": world_size, "ranks": ranks}
    return "generation", number, {**data, "start_step": 1, "restore": {"source": "none"}, "cause": "restart"}


async def waiting_job(live: Any, name: str = "waits") -> str:
    """Submit a job that waits; return its id."""
    return (await live.submit(name=name))["id"]


async def failed_job(live: Any, name: str = "fails") -> str:
    """Make a job that failed in its own code; return its id."""
    job = (await live.submit(name=name))["id"]
    await live.run(job)
    error = {"kind": "ValueError", "message": "bad batch", "traceback": TRACEBACK, "rank": 1, "step": 3}
    ended = {"state": "FAILED", "reason": "user_error", "message": "ValueError: bad batch", "error": error}
    await live.report(job, ("state", 1, ended))
    return job


async def job_with_ranks(live: Any, world_size: int = 4, slow: int | None = 3, name: str = "slow") -> str:
    """Make a job that runs, with one slow rank; return its id."""
    job = (await live.submit(name=name))["id"]
    await live.run(job)
    ranks = {
        str(rank): [7, "all_reduce" if rank != slow else "forward", 0.9 if rank == slow else 0.1, 0.0, 0.4]
        for rank in range(world_size)
    }
    events = [placed(world_size)]
    if slow is not None:
        found = {"rank": slow, "node": f"node-{slow // 2}", "work_s": 0.9, "usual_s": 0.1, "is_crowded": False}
        events.append(("stragglers", 2, {"ranks": [found]}))
    await live.report(job, *events, status={"ranks": ranks})
    live.cluster.running[job] = {
        str(rank): {
            "text": f"Thread 0x7f{rank:02} (most recent call first):\n"
            + ("  File tokens.py, line 12, in read\n" if rank == slow else "  File ops.py, line 3, in all_reduce\n")
            + "  File train.py, line 40, in step\n",
            "node": f"node-{rank // 2}",
            "pid": 100 + rank,
            "place": [7, "forward"],
        }
        for rank in range(world_size)
    }
    return job


async def talking_job(live: Any, lines: int = 3000, name: str = "talks") -> str:
    """Make a job of four ranks of which rank 2 prints; return its id."""
    job = await job_with_ranks(live, slow=None, name=name)
    text = "".join(f"line {number}\n" for number in range(lines))
    live.cluster.logs[job, 2, 2, "stdout"] = text + "\x1b[31mloss is NaN\x1b[0m <b>here</b>\nend\n"
    live.cluster.logs[job, 2, 0, "stdout"] = "rank 0 begins\n"
    live.cluster.logs[job, 1, 0, "stderr"] = "an earlier NaN\n"
    return job


def add_node(live: Any, name: str, **fields: Any) -> None:
    """Add a node to the cluster."""
    live.cluster.add_node(Node(f"{name:0<40}", name, "10.0.0.1", cpus=4, free_cpus=4, **fields))
