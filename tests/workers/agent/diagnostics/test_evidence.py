"""What a node keeps of a generation that ends: of real ranks that wait, hold the interpreter's lock, or are stopped."""

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.job_host import JobHost
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import RankInspection
from regroup.workers.contract.messages import FaultDue, Join, Restore
from regroup.workers.contract.rank_config import RankConfig

SCRIPT = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(3))
print("\\n".join(f"line {number}" for number in range(80)), flush=True)
print("about to wait", file=sys.stderr, flush=True)
open(os.environ["MARK"] + str(rank), "w").close()
if rank == 1:
    sum(range(10**15))  # one call that never lets go of the interpreter's lock, whatever signal comes
dist.all_reduce(torch.ones(5))
"""


async def granted(due: FaultDue) -> bool:
    return True


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[JobHost]:
    logs = tmp_path / "logs"
    logs.mkdir()
    config = AgentConfig(
        job_id=uuid.uuid4().hex[:16],
        job_name="t",
        node_id="node0",
        node_name="alpha",
        address="127.0.0.1",
        supervisor="s",
        storage_uri=f"file://{tmp_path}/storage",
        datasets_uri=f"file://{tmp_path}/datasets",
        log_dir=str(logs),
        env={"MARK": str(tmp_path / "mark")},
        preload=("torch", "torch.distributed", "regroup.workers.rank.main"),
    )
    made = JobHost(config, granted, lambda: None)
    yield made
    await made.close()


async def form(host: JobHost, tmp_path: Path) -> None:
    """Three ranks of a script, once each has come as far as it comes."""
    script = tmp_path / "waits.py"
    script.write_text(SCRIPT)
    await host.prepare()
    store = host.open_store(1)
    layout, entry = {"dp_shard": 3}, f"script:{script}"
    joins = [
        Join("job", 1, rank, 3, rank, 3, 0, 1, layout, "cpu", *store, Restore("none"), entry, RankConfig())
        for rank in range(3)
    ]
    await host.form(joins, [0, 1, 2], {})
    async with asyncio.timeout(60):
        while not all((tmp_path / f"mark{rank}").exists() for rank in range(3)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def stop(pid: int) -> None:
    """Until no thread of it runs, the one that answers among them: each stops when it comes to it."""
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(10):
        while states_of_threads(pid) != {"T"}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def states_of_threads(pid: int) -> set[str]:
    return {file.read_text().rpartition(") ")[2][0] for file in Path(f"/proc/{pid}/task").glob("*/stat")}


def all_stand_still(places: Mapping[int, RankInspection]) -> bool:
    return "all_reduce" in places[0].text and places[1].collectives is None


async def left(host: JobHost, tmp_path: Path) -> dict[str, Any]:
    """End the generation, and read what is left of it."""
    await host.end(1)
    assert await host.evidence.leave(1, "i1") > 0
    return json.loads((tmp_path / "storage" / "evidence" / "i1" / "node0.json").read_text())


async def test_ranks_that_cannot_answer_leave_what_can_be_had_of_them(host: JobHost, tmp_path: Path) -> None:
    await form(host, tmp_path)
    await stop(host.pids().ranks[2])
    async with asyncio.timeout(30):
        while not all_stand_still(places := await host.look()):
            pass
    assert {rank: place.node for rank, place in places.items()} == dict.fromkeys(range(3), "alpha")
    assert [(each["name"], each["sequence"], each["is_over"]) for each in places[0].collectives or []][-2:] == [
        ("all_reduce", 1, True),
        ("all_reduce", 2, False),
    ]
    assert places[1].collectives is None and "waits.py" in places[1].text, "its stacks need no lock"
    assert "collectives.py" not in places[0].text, "the thread that answers is ours"
    assert places[2].collectives is None and "is stopped by a signal" in places[2].text

    seen = await left(host, tmp_path)
    assert (seen["node"], seen["generation"], sorted(seen["ranks"])) == ("alpha", 1, ["0", "1", "2"])
    waiting, holding, stopped = (seen["ranks"][rank] for rank in "012")
    assert waiting["collectives"][-1]["shapes"] == [[5]] and "all_reduce" in waiting["stacks"]
    assert stopped["uses"]["state"].startswith("T") and holding["uses"]["memory_bytes"] > 2**20
    assert waiting["stdout"].splitlines()[0] == "line 30" and waiting["stdout"].endswith("line 79"), "the last 50 lines"
    assert holding["stderr"] == "about to wait"
    assert seen["host"]["free_memory_bytes"] < seen["host"]["memory_bytes"] and len(seen["host"]["load"]) == 3
    assert await host.evidence.leave(1, "i1") > 0, "asked once more, it says the same"
    host.evidence.remove(["i1"])
    assert not (tmp_path / "storage" / "evidence" / "i1").exists()


async def test_an_exit_is_noted_without_asking_anybody(host: JobHost, tmp_path: Path) -> None:
    await form(host, tmp_path)
    os.kill(host.pids().ranks[2], signal.SIGKILL)
    async with asyncio.timeout(30):
        while 2 in host.report().running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    took = []
    for _ in range(5):
        before_s = time.perf_counter()
        host.evidence.note(host._formation, host.pids().ranks)
        took.append(time.perf_counter() - before_s)
    assert min(took) < 0.02, "a recovery waits for it"
    seen = await left(host, tmp_path)
    ended = seen["ranks"]["2"]
    assert (ended["exit_code"], ended["uses"], ended["phase"]) == (-signal.SIGKILL, {}, "build")
    assert ended["stdout"].endswith("line 79")
    assert not any(at["was_asked"] or at["stacks"] for at in seen["ranks"].values())
    assert await host.evidence.leave(7, "i2") == 0, "of a generation that was not here"
