"""The pipeline on a real Ray: in a cluster whose processors are all held, through the death of its workers."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group

from regroup.service.local import ray_cluster
from regroup.service.ray_adapter.cluster import RayCluster
from regroup.service.settings import Settings
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json
from regroup.workers.data.prepare.ray_pipeline import Pipeline
from tests.support.inputs.data_inputs import DOCUMENTS, planned, prepared, recipe, write

RESERVATIONS = ("reservation-0", "reservation-1")


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """Two nodes of two processors, all of them held by the reservations of one job.

    The cluster has a token, like all clusters of these tests: Ray in this process keeps the kind that it met first.
    """
    state, before = Path(tempfile.mkdtemp(prefix="rgp-", dir="/tmp")), dict(os.environ)
    settings = Settings(state_dir=state, local_nodes=2, slots_per_node=2)
    local = ray_cluster.start(settings)
    os.environ.update(ray_cluster.ray_environment(settings.ray_token_path))
    asyncio.run(RayCluster.connect(local.address))
    ids = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
    for name, node in zip(RESERVATIONS, ids, strict=True):
        group = placement_group(
            [{"CPU": 2}], name=name, lifetime="detached", bundle_label_selector=[{"ray.io/node-id": node}]
        )
        assert group.wait(30)
    assert not ray.available_resources().get("CPU")
    yield ids
    ray.shutdown()
    ray_cluster.stop(state)
    shutil.rmtree(state)
    os.environ.clear()
    os.environ.update(before)


def order(data: dict[str, Any], nodes: list[str], tmp_path: Path, code: str = "") -> dict[str, Any]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    place = {
        "scratch": str(scratch),
        "code": code,
        "python": {"executable": sys.executable, "venv": "", "ours": ""},
    }
    return {
        "data": data,
        "datasets_uri": str(tmp_path / "out"),
        "agent": to_json(AgentConfig("job", "job", "node", "node", "127.0.0.1", "", "", "")),
        "places": {
            node: {**place, "reservations": {reservation: 2}}
            for node, reservation in zip(nodes, RESERVATIONS, strict=True)
        },
    }


async def test_it_makes_what_one_process_makes_and_finds_it_again(nodes: list[str], tmp_path: Path) -> None:
    data = recipe(write(tmp_path / "in", "jsonl", DOCUMENTS * 100), "jsonl")
    notes: list[dict[str, Any]] = []
    pipeline = Pipeline()
    made = await pipeline.run(order(data, nodes, tmp_path), lambda kind, note: notes.append(note))
    meta = prepared(data, tmp_path / "alone", unit_bytes=8 << 20)
    assert (made["fingerprint"], made["records"]) == (
        meta["fingerprint"],
        {"train": meta["splits"]["train"]["records"]},
    )
    assert planned(data, tmp_path / "out").meta == meta
    assert notes[-1]["fraction"] == 1.0 and "1 of 1 parts prepared" in notes[-1]["message"]
    notes.clear()
    assert await pipeline.run(order(data, nodes, tmp_path), lambda kind, note: notes.append(note)) == made
    assert not [note for note in notes if "parts prepared" in note["message"]]


async def test_an_error_names_its_cause(nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make(batch):\n    raise ValueError('bad')\n")
    data = recipe(write(tmp_path / "in", "jsonl"), "jsonl", function="mine:make")
    made = await Pipeline().run(order(data, nodes, tmp_path, str(tmp_path)), lambda kind, note: None)
    assert made["error"]["kind"] == "data"
    assert "mine:make failed" in made["error"]["message"] and "ValueError: bad" in made["error"]["message"]
    assert "mine.py" in made["error"]["traceback"]
    nowhere = await Pipeline().run(order(recipe("/nowhere", "text"), nodes, tmp_path), lambda kind, note: None)
    assert "/nowhere" in nowhere["error"]["message"]


SLOW = """
import os, pathlib, time
def make(batch):
    here = pathlib.Path(__file__).parent
    (here / f"{os.getppid()}.pid").touch()
    while not (here / "go").exists():
        time.sleep(0.05)
    return {"n": batch["id"]}
"""


async def held(folder: Path) -> list[int]:
    """Wait for workers inside the function and return them."""
    deadline = time.monotonic() + 60
    while not (found := [int(name.removesuffix(".pid")) for name in os.listdir(folder) if name.endswith(".pid")]):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


async def test_dead_workers_and_a_dead_driver_cost_nothing_but_time(nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    data = recipe(write(tmp_path / "in", "jsonl"), "jsonl", function="mine:make")
    notes: list[str] = []
    running = asyncio.create_task(
        Pipeline().run(order(data, nodes, tmp_path, str(tmp_path)), lambda kind, note: notes.append(kind))
    )
    (worker,) = await held(tmp_path)
    (tmp_path / f"{worker}.pid").unlink()
    os.kill(worker, signal.SIGKILL)
    (worker,) = await held(tmp_path)
    (tmp_path / f"{worker}.pid").unlink()
    (driver,) = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _title(pid) == "ray::drive"]
    os.kill(driver, signal.SIGKILL)
    await held(tmp_path)
    (tmp_path / "go").touch()
    made = await running
    assert made["records"] == {"train": len(DOCUMENTS)}
    assert notes.count("preparation") == 1


async def test_cancelled_it_leaves_no_task(nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    data = recipe(write(tmp_path / "in", "jsonl"), "jsonl", function="mine:make")
    pipeline = Pipeline()
    running = asyncio.create_task(pipeline.run(order(data, nodes, tmp_path, str(tmp_path)), lambda kind, note: None))
    (worker,) = await held(tmp_path)
    await pipeline.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    deadline = time.monotonic() + 60
    while _title(worker).startswith("ray::Map"):  # an idle worker goes by another title, a dead one by none
        assert time.monotonic() < deadline, _title(worker)
        await asyncio.sleep(0.1)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").split(" ")[0]
    except OSError:
        return ""
