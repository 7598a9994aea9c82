"""Evidence of real ranks that wait in a collective, hold the interpreter's lock, or are stopped."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.diagnostics.evidence import crash_output
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
    sum(range(10**15))  # one call that never releases the interpreter lock, not even for a signal
dist.all_reduce(torch.ones(5))
"""


async def approve(due: FaultDue) -> bool:
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
    created = JobHost(config, approve, lambda: None)
    yield created
    await created.close()


async def form(host: JobHost, tmp_path: Path) -> None:
    """Form three ranks of a script, and wait until each of them cannot proceed."""
    script = tmp_path / "waits.py"
    script.write_text(SCRIPT)
    await host.prepare()
    store = host.start_store(1)
    layout, entry = {"dp_shard": 3}, f"script:{script}"
    joins = [
        Join("job", 1, rank, 3, rank, 3, 0, 1, layout, "cpu", *store, Restore("none"), entry, RankConfig())
        for rank in range(3)
    ]
    await host.form_ranks(joins, [0, 1, 2], [])
    async with asyncio.timeout(60):
        while not all((tmp_path / f"mark{rank}").exists() for rank in range(3)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def stop(pid: int) -> None:
    """Stop a process and wait until all its threads have stopped, including the one that answers requests."""
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(10):
        while states_of_threads(pid) != {"T"}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def states_of_threads(pid: int) -> set[str]:
    return {file.read_text().rpartition(") ")[2][0] for file in Path(f"/proc/{pid}/task").glob("*/stat")}


def all_hang(inspections: Mapping[int, RankInspection]) -> bool:
    return "all_reduce" in inspections[0].text and inspections[1].collectives is None


async def end_and_read(host: JobHost, tmp_path: Path) -> dict[str, Any]:
    """End the generation and read its evidence."""
    await host.kill_ranks(1)
    assert await host.evidence.upload(1, "i1") > 0
    return json.loads((tmp_path / "storage" / "evidence" / "i1" / "node0.json").read_text())


async def test_ranks_that_cannot_answer_still_leave_evidence(host: JobHost, tmp_path: Path) -> None:
    await form(host, tmp_path)
    await stop(host.pids().ranks[2])
    async with asyncio.timeout(30):
        while not all_hang(inspections := await host.inspect_ranks()):
            pass
    assert {rank: each.node for rank, each in inspections.items()} == dict.fromkeys(range(3), "alpha")
    assert [(each["name"], each["sequence"], each["is_over"]) for each in inspections[0].collectives or []][-2:] == [
        ("all_reduce", 1, True),
        ("all_reduce", 2, False),
    ]
    assert inspections[1].collectives is None and "waits.py" in inspections[1].text, "stacks need no interpreter lock"
    assert "collectives.py" not in inspections[0].text, "the thread of the responder is left out"
    assert inspections[2].collectives is None and "is stopped by a signal" in inspections[2].text

    evidence = await end_and_read(host, tmp_path)
    assert (evidence["node"], evidence["generation"], sorted(evidence["ranks"])) == ("alpha", 1, ["0", "1", "2"])
    waiting, holding, stopped = (evidence["ranks"][rank] for rank in "012")
    assert waiting["collectives"][-1]["shapes"] == [[5]] and "all_reduce" in waiting["stacks"]
    assert stopped["uses"]["state"].startswith("T") and holding["uses"]["memory_bytes"] > 2**20
    assert waiting["stdout"].splitlines()[0] == "line 30" and waiting["stdout"].endswith("line 79"), "the last 50 lines"
    assert holding["stderr"] == "about to wait"
    assert (
        evidence["host"]["free_memory_bytes"] < evidence["host"]["memory_bytes"] and len(evidence["host"]["load"]) == 3
    )
    assert await host.evidence.upload(1, "i1") > 0, "a repeated request returns the same size"
    host.evidence.remove(["i1"])
    assert not (tmp_path / "storage" / "evidence" / "i1").exists()


CRASHES = """
import ctypes, sys
from regroup.workers.os import stacks
print("668 vs 16", file=sys.stderr, flush=True)
stacks.report_crashes()
ctypes.CDLL(None).abort()
"""


def test_the_output_of_a_crash_is_what_libraries_print_and_the_stacks(tmp_path: Path) -> None:
    program, log = tmp_path / "crashes.py", tmp_path / "rank0"
    program.write_text(CRASHES)
    with Path(f"{log}.err").open("wb") as errors:
        code = subprocess.run([sys.executable, program], stderr=errors, timeout=60, check=False).returncode
    output = crash_output(log, code)
    assert output.startswith("668 vs 16\nFatal Python error: Aborted\n") and "crashes.py" in output
    assert "Extension modules" not in output
    assert crash_output(log, -signal.SIGKILL) == crash_output(log, 1) == "", "the process had no time to report a place"
    assert crash_output(tmp_path / "none", code) == ""


async def test_evidence_of_an_exit_needs_no_request_to_ranks(host: JobHost, tmp_path: Path) -> None:
    await form(host, tmp_path)
    os.kill(host.pids().ranks[2], signal.SIGKILL)
    async with asyncio.timeout(30):
        while 2 in host.report().running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    durations_s = []
    for _ in range(5):
        before_s = time.perf_counter()
        host.evidence.capture(host._group, host.pids().ranks)
        durations_s.append(time.perf_counter() - before_s)
    assert min(durations_s) < 0.02, "a recovery waits for this call"
    evidence = await end_and_read(host, tmp_path)
    ended = evidence["ranks"]["2"]
    assert (ended["exit_code"], ended["uses"], ended["phase"]) == (-signal.SIGKILL, {}, "build")
    assert ended["stdout"].endswith("line 79")
    assert not any(each["was_inspected"] or each["stacks"] for each in evidence["ranks"].values())
    assert await host.evidence.upload(7, "i2") == 0, "the generation did not run on this node"
