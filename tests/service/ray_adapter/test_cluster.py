"""The local Ray and its adapter, on a real cluster of two nodes with simulated GPUs."""

import asyncio
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import ray
from ray._private.ray_constants import KV_NAMESPACE_FUNCTION_TABLE
from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from regroup.service.domain.errors import NotFoundError
from regroup.service.local import processes, ray_cluster
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.cluster import Node, Reservation, ReservationRefusedError, SupervisorGoneError, agent_name
from regroup.service.ports.sync import Intents, SyncRequest
from regroup.service.ray_adapter import reservations
from regroup.service.ray_adapter import standby as standby_agents
from regroup.service.ray_adapter.actor_lookup import shown_names
from regroup.service.ray_adapter.agents import RayAgents
from regroup.service.ray_adapter.cluster import RayCluster
from regroup.service.settings import Settings
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json
from tests.support.inputs.sync_records import start_config

pytestmark = pytest.mark.asyncio(loop_scope="module")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    folder = Path(tempfile.mkdtemp(prefix="rgt-", dir="/tmp"))
    yield Settings(state_dir=folder, local_nodes=2, slots_per_node=4, local_gpus_per_node=4, ray_dashboard=False)
    ray_cluster.stop(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def local(settings: Settings) -> Iterator[ray_cluster.LocalRay]:
    before = dict(os.environ)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    # Workers unpickle the test's supervisor by name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    started = ray_cluster.start(settings)
    os.environ.update(ray_cluster.ray_environment(settings.ray_token_path))
    sys.path.insert(0, str(HERE))
    yield started
    sys.path.remove(str(HERE))
    os.environ.clear()
    os.environ.update(before)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(local: ray_cluster.LocalRay) -> AsyncIterator[RayCluster]:
    connected = await RayCluster.connect(local.address, local.dashboard_url, "echo_supervisor:EchoSupervisor")
    yield connected


async def training_nodes(cluster: RayCluster) -> list[Node]:
    return sorted((node for node in await cluster.nodes() if not node.is_control), key=lambda node: node.name)


async def free_gpus(cluster: RayCluster, node: Node, expected: float) -> None:
    """Wait until Ray reports this number of free GPUs, which takes a moment."""
    deadline = time.monotonic() + 10
    while {item.id: item.free_gpus for item in await cluster.nodes()}[node.id] != expected:
        assert time.monotonic() < deadline, f"never {expected} GPUs free on {node.name}"
        await asyncio.sleep(0.05)


async def test_nodes_have_names_roles_and_slots(cluster: RayCluster) -> None:
    nodes = await cluster.nodes()
    assert [(node.name, node.cpus, node.gpus) for node in sorted(nodes, key=lambda node: node.name)] == [
        ("control", 0, 0), ("local-1", 4, 4), ("local-2", 4, 4),
    ]  # fmt: skip
    assert {node.name for node in nodes if node.is_control} == {"control"}


async def test_a_running_cluster_is_reused(settings: Settings, local: ray_cluster.LocalRay) -> None:
    found, is_running = ray_cluster.ensure(settings)
    assert is_running and found == local


async def test_no_dashboard_is_started_without_the_setting(cluster: RayCluster, local: ray_cluster.LocalRay) -> None:
    assert await cluster.dashboard_url() is None
    commands = [processes.command_line(process) for process in ray_cluster.find_processes(local)]
    (rest,) = (words for words in commands if any(word.endswith(b"dashboard/dashboard.py") for word in words))
    assert b"--disable-frontend" in rest and b"--modules-to-load=UsageStatsHead" in rest


async def test_the_token_is_private_and_required(settings: Settings, local: ray_cluster.LocalRay) -> None:
    assert settings.ray_token_path.stat().st_mode & 0o777 == 0o600
    stranger = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    script = f"import ray; ray.init(address={local.address!r}, log_to_driver=False); print('JOINED')"
    once = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_NUM_REDIS_GET_RETRIES": "1",
    }  # By default, Ray tries 20 times, once per second.
    tried = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], env={**stranger, **once},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "JOINED" not in tried.stdout and tried.returncode != 0
    assert "InvalidAuthToken" in tried.stderr, tried.stderr


async def test_reservations_have_disjoint_devices_of_their_node(cluster: RayCluster) -> None:
    node = (await training_nodes(cluster))[0]
    first = Reservation("regroup-reservation:a:1:0", "a", node.id, 2, "cuda", 2)
    second = Reservation("regroup-reservation:b:1:0", "b", node.id, 2, "cuda", 2)
    devices, others = await asyncio.gather(cluster.create_reservation(first), cluster.create_reservation(second))
    assert len(devices) == len(others) == 2 and not set(devices) & set(others)
    assert await cluster.reservations() == {first.name, second.name}
    await free_gpus(cluster, node, 0)
    assert await cluster.create_reservation(first) == devices, "the same reservation has the same devices"
    for reservation in (first, second):
        await cluster.release_reservation(reservation.name)
    await cluster.release_reservation(first.name)
    assert await cluster.reservations() == set()
    await free_gpus(cluster, node, 4)
    assert set(await cluster.create_reservation(first)) <= {0, 1, 2, 3}, "a name can be used again"
    _internal_kv_del(f"reservation/{first.name}".encode(), namespace=b"regroup")  # an older server wrote no record
    assert await cluster.reservations() == set()
    await asyncio.to_thread(reservations.adopt)
    assert await cluster.reservations() == {first.name}
    await cluster.release_reservation(first.name)
    await asyncio.to_thread(reservations.adopt)
    assert await cluster.reservations() == set(), "Ray still lists the groups that were removed"


async def test_a_full_node_refuses_a_reservation_without_leftovers(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.ray_adapter.reservations._READY_S", 0.5)
    node = (await training_nodes(cluster))[0]
    with pytest.raises(ReservationRefusedError, match="did not provide"):
        await cluster.create_reservation(Reservation("regroup-reservation:c:1:0", "c", node.id, 5, "cpu", 5))
    with pytest.raises(ReservationRefusedError):
        await cluster.create_reservation(Reservation("regroup-reservation:c:2:0", "c", "0" * 56, 1, "cpu", 1))
    assert await cluster.reservations() == set()


async def test_a_supervisor_survives_a_crash_and_runs_until_it_is_stopped(
    cluster: RayCluster, settings: Settings
) -> None:
    name = "regroup-supervisor:j1"
    await cluster.start_supervisor(name, start_config("j1"))
    await cluster.start_supervisor(name, start_config("another, ignored"))
    assert await cluster.actors() == {name}
    reply = await cluster.sync("j1", SyncRequest(Intents(cancel=True)))
    assert reply.events[0].data["payload"]["job_id"] == "j1"
    assert reply.events[0].data["cancel"] is True
    assert (await cluster.read_log("j1", 1, 0, "stdout", 2, 100)).data == "0/stdout"

    os.kill(int(reply.boot_id), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        try:
            again = await cluster.sync("j1", SyncRequest(boot_id=reply.boot_id))
            break
        except Exception:
            assert time.monotonic() < deadline, "Ray did not restart the supervisor"
            await asyncio.sleep(0.1)
    assert again.boot_id != reply.boot_id and again.events[0].data["payload"]["job_id"] == "j1"

    await cluster.stop_supervisor(name)
    assert await cluster.actors() == set()
    with pytest.raises(SupervisorGoneError):
        await cluster.sync("j1", SyncRequest())
    with pytest.raises(NotFoundError):
        await cluster.read_log("j1", 1, 0, "stdout", 0, 10)
    await cluster.stop_supervisor(name)


async def test_ray_shows_supervisors_and_agents_by_the_names_of_job_and_node(
    cluster: RayCluster, tmp_path: Path
) -> None:
    await cluster.start_supervisor("regroup-supervisor:j6", start_config("j6", name="gpt"))
    node = (await training_nodes(cluster))[0]
    config = replace(agent_config("j6", node, tmp_path), job_name="gpt")
    await asyncio.to_thread(RayAgents("j6").create, config)
    agent = agent_name("j6", node.id)
    assert await cluster.actors() == {"regroup-supervisor:j6", agent}
    shown = {"regroup-supervisor:gpt:j6", f"regroup-agent:gpt:{node.name}:j6:{node.id[:8]}"}
    assert await asyncio.to_thread(shown_names) == shown

    other = RayCluster(None, "echo_supervisor:EchoSupervisor")  # as of another server, which created neither
    assert (await other.sync("j6", SyncRequest())).events[0].data["payload"]["spec"]["name"] == "gpt"
    assert (await RayAgents("j6").agent(node.id, timeout_s=60).status()).pids.agent
    await other.stop_supervisor("regroup-supervisor:j6")
    await other.kill_actor(agent)
    assert await cluster.actors() == set()


async def test_one_of_several_writers_creates_a_record_until_the_job_is_deleted(cluster: RayCluster) -> None:
    key = b"generation/j2/1"
    with ThreadPoolExecutor(8) as threads:
        writers = [
            threads.submit(_internal_kv_put, key, f"{n}".encode(), overwrite=False, namespace=b"regroup")
            for n in range(8)
        ]
    existed = [writer.result() for writer in writers]
    assert existed.count(False) == 1
    assert _internal_kv_get(key, namespace=b"regroup") == str(existed.index(False)).encode()
    _internal_kv_put(b"generation/j22/1", b"another job's", namespace=b"regroup")
    assert {"j2", "j22"} <= await cluster.recorded_jobs()
    await cluster.forget_job("j2")
    assert "j2" not in await cluster.recorded_jobs()
    assert _internal_kv_get(key, namespace=b"regroup") is None
    assert _internal_kv_get(b"generation/j22/1", namespace=b"regroup") == b"another job's"


async def test_a_supervisor_starts_in_the_prestarted_process(cluster: RayCluster, local: ray_cluster.LocalRay) -> None:
    control = next(node for node in await cluster.nodes() if node.is_control)
    before = idle(local)
    await cluster.prestart(control)
    async with asyncio.timeout(30):
        while not (prestarted := idle(local) - before):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    name = "regroup-supervisor:j3"
    await cluster.start_supervisor(name, start_config("j3"))
    assert {int((await cluster.sync("j3", SyncRequest())).boot_id)} == prestarted
    await cluster.stop_supervisor(name)


def idle(local: ray_cluster.LocalRay) -> set[int]:
    """Return the PIDs of the cluster's idle processes."""
    marked = processes.find_marked("REGROUP_RAY_CLUSTER", local.id)
    return {
        process.pid for process in marked if Path(f"/proc/{process.pid}/cmdline").read_text().startswith("ray::IDLE")
    }


async def test_a_standby_becomes_the_agent_of_one_job(cluster: RayCluster, tmp_path: Path) -> None:
    node = (await training_nodes(cluster))[0]
    for _ in range(2):
        assert await cluster.stand_by(node, "", preflight=True) == ""
    waiting = await asyncio.to_thread(standby_agents._free, node.id)
    assert len(waiting) == 1, "two requests start one standby agent"
    assert await cluster.actors() == set(), "a standby agent does not belong to a job"
    assert await cluster.is_clear(node, "j4")
    assert not await cluster.is_clear(replace(node, id="f" * 56), "j4"), "no agent can prove that the node is clear"
    standby = ray.get_actor(waiting[0], namespace="regroup")

    adopted, created = agent_config("j4", node, tmp_path), agent_config("j5", node, tmp_path)
    first = await asyncio.to_thread(RayAgents("j4").create, adopted)
    assert first == standby
    assert await asyncio.to_thread(RayAgents("j4").create, adopted) == standby, "a second client finds the same agent"
    second = await asyncio.to_thread(RayAgents("j5").create, created)
    assert second != standby
    statuses = [await RayAgents(job_id).agent(node.id, timeout_s=60).status() for job_id in ("j4", "j5")]
    assert statuses[0].pids.agent != statuses[1].pids.agent
    names = {agent_name("j4", node.id), agent_name("j5", node.id)}
    assert await cluster.actors() == names

    for name in names:
        await cluster.kill_actor(name)
    assert await cluster.actors() == set()
    third = await asyncio.to_thread(RayAgents("j4").create, adopted)
    assert third != standby, "a dead agent is not found"
    await cluster.kill_actor(agent_name("j4", node.id))
    await cluster.forget_job("j4")
    assert standby_agents._records("standby/") == []


def agent_config(job_id: str, node: Node, folder: Path) -> AgentConfig:
    uri = folder.as_uri()
    return AgentConfig(job_id, "t", node.id, node.name, node.address, f"regroup-supervisor:{job_id}", uri, uri)


async def test_a_standby_that_was_claimed_by_a_process_that_died_becomes_the_agent(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Check a record whose process never sent the call that makes the standby an agent."""
    node = (await training_nodes(cluster))[1]
    platform = AgentConfig("", "standby", node.id, node.name, node.address, "", "", "", preload=("json",))
    await asyncio.to_thread(standby_agents.ensure, platform)
    while not (waiting := await asyncio.to_thread(standby_agents._free, node.id)):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    claimed = replace(platform, job_id="j9", job_name="gpt", storage_uri=tmp_path.as_uri())
    name = agent_name("j9", node.id)
    _internal_kv_put(standby_agents._record(name, waiting[0]), b"", namespace=b"regroup")
    agents = RayAgents("j9")
    await agents.start(claimed)
    assert await agents.agent(node.id, timeout_s=30.0).check_storage("nonce") is False, "it has the storage of the job"
    handle = ray.get_actor(waiting[0], namespace="regroup")
    assert not await handle.adopt.remote(to_json(replace(claimed, job_id="j10"))), "it belongs to the first job"
    _internal_kv_put(standby_agents._record(agent_name("j10", node.id), waiting[0]), b"", namespace=b"regroup")
    other = await asyncio.to_thread(RayAgents("j10").create, replace(claimed, job_id="j10"))
    assert other != handle, "a record that another job won is void"
    for each in (handle, other):
        ray.kill(each)
    for job in ("j9", "j10"):
        await asyncio.to_thread(standby_agents.forget, job)


async def test_the_autoscaler_gets_the_requested_bundles(cluster: RayCluster) -> None:
    for bundles, expected in (([Bundle(2, 1), Bundle(1)], [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]), ([], [])):
        await cluster.request_nodes(bundles)
        request = await asyncio.to_thread(_internal_kv_get, AUTOSCALER_RESOURCE_REQUEST_CHANNEL)
        assert sorted(json.loads(request), key=str) == expected


async def test_each_class_and_function_is_exported_once(cluster: RayCluster, tmp_path: Path) -> None:
    node = (await training_nodes(cluster))[0]
    for job_id in ("j8", "j9"):
        reservation = Reservation(f"regroup-reservation:{job_id}:1:0", job_id, node.id, 1, "cuda", 1)
        await cluster.create_reservation(reservation)
        await cluster.release_reservation(reservation.name)
        await asyncio.to_thread(RayAgents(job_id)._create, job_id, agent_config(job_id, node, tmp_path))
        await cluster.kill_actor(job_id)
    space = KV_NAMESPACE_FUNCTION_TABLE
    keys = _internal_kv_list(b"", namespace=space)
    exported = [pickle.loads(value) for key in keys if (value := _internal_kv_get(key, namespace=space))]
    names = (str(each.get("class_name") or each.get("function_name")) for each in exported)
    found = Counter(name.rpartition(".")[2] for name in names)
    assert {"NodeAgentActor", "_visible_devices"} <= found.keys()
    assert found.most_common(1)[0][1] == 1


async def test_disconnecting_leaves_the_cluster_running(cluster: RayCluster, local: ray_cluster.LocalRay) -> None:
    await cluster.start_supervisor("regroup-supervisor:last", start_config("last"))
    await cluster.sync("last", SyncRequest())
    await cluster.close()
    assert local.is_alive


async def test_stop_leaves_no_processes_and_no_files(local: ray_cluster.LocalRay, settings: Settings) -> None:
    assert ray_cluster.stop(settings.state_dir)
    assert not any(process.is_alive for process in local.daemons)
    assert processes.find_marked("REGROUP_RAY_CLUSTER", local.id) == []
    assert local.temp_dir not in {str(path) for path in _folders(Path(local.temp_dir).parent)}
    assert _folders(settings.state_dir) == []
    assert not ray_cluster.stop(settings.state_dir)


def _folders(parent: Path) -> list[Path]:
    return list(parent.iterdir())
