"""A control plane that reaches its cluster through a gateway: calls, long polls, and a gateway that does not answer."""

import asyncio
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import ConflictError, NotFoundError, UnavailableError
from regroup.service.domain.states import Reason
from regroup.service.domain.topology import Node
from regroup.service.local.api_token import ensure_token
from regroup.service.ports.cluster import (
    ClusterUnavailableError,
    Reservation,
    ReservationRefusedError,
    SupervisorGoneError,
    supervisor_name,
)
from regroup.service.ports.sync import EndRequest, Intents, SyncRequest
from regroup.service.remote_cluster.client import RemoteCluster
from regroup.service.remote_cluster.wire import ClusterFaultError
from regroup.service.settings import Settings
from regroup.workers.contract.agent_records import CommandExit, CommandOutput
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.certificates import write_certificate
from tests.support.inputs.sync_records import start_config
from tests.support.jobs.shell_commands import blocks
from tests.support.servers.gateway_server import TOKEN, serve_gateway

NODE = Node("n1", "gpu-1", "10.0.0.1", cpus=8.0, gpus=2.0, labels={"rack": "r7"})


async def test_calls_reach_the_cluster_and_return_its_results() -> None:
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
        cluster = remote.as_cluster()
        held = Reservation("regroup-reservation:j:n1:1", "j", "n1", 2, "cuda", 2)
        assert list(await cluster.create_reservation(held)) == [0, 1]
        assert await cluster.reservations() == {held.name}
        (node,) = await cluster.nodes()
        assert (node.free_gpus, node.labels) == (0.0, {"rack": "r7"})
        assert await cluster.stand_by(NODE, "eth0", preflight=True) == ""
        with pytest.raises(ReservationRefusedError, match="n9 does not hold"):
            await cluster.create_reservation(Reservation("other", "j", "n9", 1, "cuda", 1))
        with pytest.raises(NotFoundError):
            await cluster.stacks("j")
        fake.outputs = [("stdout", b"\xff\n"), {"code": 3, "why": "ended"}]
        assert await cluster.execution("j", "n1", "k", 100, 1.0) == CommandOutput((("stdout", b"\xff\n"),))
        assert (await cluster.execution("j", "n1", "k", 100, 1.0)).ended == CommandExit(3, "ended")
        await remote.close()


async def test_a_long_poll_lasts_as_long_as_it_asks_and_ends_with_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.remote_cluster.client._CALL_S", 0.3)
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
        cluster = remote.as_cluster()
        await cluster.start_supervisor(supervisor_name("j"), start_config("j"))
        started_s = time.monotonic()
        reply = await cluster.sync("j", SyncRequest(wait_s=1.0))
        assert reply.events == () and time.monotonic() - started_s >= 1.0, "longer than other calls may last"
        intents = Intents(end=EndRequest(Reason.CANCELLED_BY_USER, "enough"))
        polling = asyncio.create_task(cluster.sync("j", SyncRequest(intents, wait_s=30.0)))
        supervisor = fake.supervisors[supervisor_name("j")]
        assert await supervisor.wait_for_intent("end") == {
            "reason": Reason.CANCELLED_BY_USER.value,
            "message": "enough",
        }
        await supervisor.state("RUNNING", "started")
        (event,) = (await polling).events
        assert event.data["state"] == "RUNNING"
        with pytest.raises(SupervisorGoneError):
            await cluster.sync("other", SyncRequest())
        await remote.close()


async def test_hundreds_of_long_polls_wait_at_the_same_time() -> None:
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
        cluster = remote.as_cluster()
        for number in range(300):
            await fake.start_supervisor(supervisor_name(f"j{number}"), start_config(f"j{number}"))
        polls = [asyncio.create_task(cluster.sync(f"j{number}", SyncRequest(wait_s=60.0))) for number in range(300)]
        async with asyncio.timeout(30):
            assert len(await cluster.nodes()) == 1, "no poll delays another call"
            for supervisor in fake.supervisors.values():
                await supervisor.state("RUNNING", "started")
            assert [len((await poll).events) for poll in polls] == [1] * 300
        await remote.close()


async def test_places_of_nodes_are_a_setting_of_the_control_plane(tmp_path: Path) -> None:
    topology = Topology(Settings(state_dir=tmp_path, topology_labels={"rack": "rack"}))
    async with serve_gateway(FakeCluster([NODE])) as url:
        remote = await RemoteCluster.connect(url, TOKEN, topology=topology)
        (node,) = await remote.nodes()
        assert node.domains == ("", "", "r7", "")
        await remote.close()


async def test_a_gateway_that_ends_makes_calls_fail_and_is_found_again() -> None:
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
    with pytest.raises(ClusterUnavailableError, match=f"the gateway {url} does not answer"):
        await remote.nodes()
    await remote.close()


async def test_a_gateway_that_accepts_and_never_answers_does_not_hold_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.remote_cluster.client._CALL_S", 0.3)
    async with serve_gateway(FakeCluster([NODE])) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stuck = RemoteCluster(remote._http, "http://gateway", None)
        stuck._http.base_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnavailableError, match="does not answer"):
            async with asyncio.timeout(10):
                await stuck.nodes()
    await remote.close()


async def test_a_lost_cluster_and_a_fault_of_the_gateway_raise_different_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCluster([NODE])
    async with serve_gateway(fake) as url:
        remote = await RemoteCluster.connect(url, TOKEN)
        fake.reachable = False
        with pytest.raises(ClusterUnavailableError, match="the cluster does not answer"):
            await remote.nodes()
        fake.reachable = True

        def fail() -> Any:
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr(fake, "_reach", fail)
        with pytest.raises(ClusterFaultError, match="the gateway failed in nodes: ZeroDivisionError"):
            await remote.nodes()
        await remote.close()


async def test_the_start_waits_for_the_gateway_and_names_what_is_wrong(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(UnavailableError, match=r"no cluster answers at .* within 0 s: .*REGROUP_GATEWAY_URL"):
        await RemoteCluster.connect(closed, TOKEN, wait_s=0.1)
    async with serve_gateway(FakeCluster([NODE])) as url:
        with pytest.raises(UnavailableError, match="refuses the token"):
            await RemoteCluster.connect(url, "another-token", wait_s=0.1)
    with pytest.raises(ConflictError, match="REGROUP_GATEWAY_CA_FILE"):
        await RemoteCluster.connect("https://127.0.0.1:1", TOKEN, ca_file=tmp_path / "missing.pem")


async def test_tls_accepts_only_the_given_authority(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files = write_certificate(tmp_path)
    other = write_certificate(tmp_path / "other")
    async with serve_gateway(FakeCluster([NODE]), certificate=files.certificate, key=files.key) as url:
        remote = await RemoteCluster.connect(url, TOKEN, ca_file=files.certificate)
        assert [node.name for node in await remote.nodes()] == ["gpu-1"]
        await remote.close()
        for wrong in (other.certificate, None):
            with pytest.raises(UnavailableError, match=r"(?i)certificate"):
                await RemoteCluster.connect(url, TOKEN, ca_file=wrong, wait_s=0.1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which the page uses, is not installed")
async def test_the_token_and_the_certificate_of_the_page_are_accepted(tmp_path: Path) -> None:
    (block,) = blocks("docs/operations/gateway.md", "sh", heading="Set it up")
    typed = block.text.replace("gateway.example.com", "localhost")
    await asyncio.to_thread(subprocess.run, ["bash", "-euc", typed], cwd=tmp_path, check=True)
    assert ensure_token(tmp_path / "gateway.token", create=False).value
    certificate, key = tmp_path / "gateway.crt", tmp_path / "gateway.key"
    async with serve_gateway(FakeCluster([NODE]), certificate=certificate, key=key) as url:
        remote = await RemoteCluster.connect(url.replace("127.0.0.1", "localhost"), TOKEN, ca_file=certificate)
        assert [node.name for node in await remote.nodes()] == ["gpu-1"]
        await remote.close()
