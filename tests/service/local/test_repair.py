"""Lost nodes of the local Ray cluster, without Ray: processes that end stand for its daemons."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.local import processes, ray_cluster, repair
from regroup.service.local.processes import Process
from regroup.service.local.ray_cluster import LocalRay, LocalRayError
from regroup.service.local.repair import NodeStarts, RestartDelays, repair_local_ray
from regroup.service.settings import Settings
from regroup.workers.os import scratch_dir

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def start_process() -> Iterator[Any]:
    running: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> tuple[subprocess.Popen[bytes], Process]:
        child = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, **environment})
        running.append(child)
        process = processes.find_process(child.pid)
        assert process is not None
        return child, process

    yield start
    for child in running:
        child.kill()
        child.wait()


def save(settings: Settings, daemons: dict[str, Process]) -> LocalRay:
    gcs = Process(daemons["control"].pid, daemons["control"].started, "gcs_server")
    raylets = {name: Process(each.pid, each.started, "raylet") for name, each in daemons.items()}
    folder, token = str(settings.state_dir / "ray"), str(settings.ray_token_path)
    cluster = LocalRay("c1", "127.0.0.1:1", "", folder, token, 2, 2, (gcs, *raylets.values()), raylets)
    ray_cluster._save(settings.state_dir, cluster)
    return cluster


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


async def test_a_lost_node_starts_again_and_a_lost_head_is_reported(
    tmp_path: Path, start_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, started = Settings(state_dir=tmp_path), asyncio.Queue[str]()
    head, first, second = start_process(), start_process(), start_process()
    daemons = {"control": head[1], "local-1": first[1], "local-2": second[1]}
    save(settings, daemons)
    assert ray_cluster.load(tmp_path) == save(settings, daemons), "the record has all of it"
    monkeypatch.setattr(repair, "POLL_S", 0.02)
    loop = asyncio.get_running_loop()

    def restart(_: Settings, name: str) -> None:
        save(settings, {**daemons, name: start_process()[1]})
        loop.call_soon_threadsafe(started.put_nowait, name)
        if name == "local-1":
            raise LocalRayError("no memory")

    monkeypatch.setattr(ray_cluster, "restart_node", restart)
    head_lost, starts = asyncio.Event(), NodeStarts()
    watching = asyncio.create_task(repair_local_ray(settings, head_lost, starts))
    end(second[0])
    assert await asyncio.wait_for(started.get(), 10) == "local-2"
    assert not head_lost.is_set() and started.empty()
    end(first[0])
    assert await asyncio.wait_for(started.get(), 10) == "local-1"
    end(head[0])
    await asyncio.wait_for(head_lost.wait(), 10)
    assert starts == NodeStarts(succeeded=1, failed=1)
    assert not watching.done() and started.empty(), "nodes without a head are not started"
    watching.cancel()


def test_a_node_that_ends_repeatedly_starts_with_growing_delays() -> None:
    delays, now_s, waited = RestartDelays(), 1000.0, list[float]()
    for _ in range(8):
        begin_s = now_s
        while not delays.is_due("local-1", now_s):
            now_s += 0.5
        waited.append(now_s - begin_s)
        delays.record("local-1", now_s)
    assert waited == [0, 2, 4, 8, 16, 32, 60, 60]
    assert delays.is_due("local-2", now_s), "each node has its own"
    now_s += 301
    delays.record("local-1", now_s)
    assert delays.is_due("local-1", now_s + 2)


def test_the_end_of_the_cluster_removes_the_scratch_folders_of_its_jobs(
    tmp_path: Path, start_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    mine, other = (tmp_path / "tmp" / f"regroup-job_{name}-00000000" for name in ("mine", "other"))
    for folder in (mine, other):
        folder.mkdir(parents=True)
        (folder / "rank0.out").write_text("x")
    locking = f"import fcntl, os, time; fcntl.flock(os.open({str(mine)!r}, os.O_RDONLY), fcntl.LOCK_EX); time.sleep(60)"
    agent = subprocess.Popen([sys.executable, "-c", locking], env={**os.environ, "REGROUP_RAY_CLUSTER": "c1"})
    neighbor = subprocess.Popen([sys.executable, "-c", locking.replace("mine", "other")], env={**os.environ})
    try:
        while not scratch_dir.holders().keys() >= {agent.pid, neighbor.pid}:
            assert agent.poll() is None and neighbor.poll() is None
        settings = Settings(state_dir=tmp_path)
        save(settings, {"control": start_process()[1]})
        assert ray_cluster.stop(tmp_path)
        assert not mine.exists() and other.exists(), "the folder of another cluster's job stays"
    finally:
        for child in (agent, neighbor):
            child.kill()
            child.wait()
