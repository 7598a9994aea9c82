"""The preflight of a node, with a real zygote, real sockets and a real full disk."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.health import preflight
from regroup.workers.agent.health.preflight import Preflight
from regroup.workers.agent.transfer import echo
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.agent_records import PreflightPeer, PreflightRequest, TransferAddress
from regroup.workers.environment.process_env import zygote_environment
from regroup.workers.os import memory_files, node_facts, nvml
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.zygote.client import ZygoteLink
from tests.support.machines.small_disk import needs_root, small_disk
from tests.workers.agent.test_job_host import config
from tests.workers.agent.transfer.held_shards import Agent, agents

FAULTY_CHECK = """
import torch
from regroup.workers.zygote import device_check


def check(args, fds):
    return {"failed": device_check.wrong_cores(lambda left, right: left @ right + (left.sum() == left.sum()))}
"""


@pytest.fixture
async def zygote(tmp_path: Path) -> AsyncIterator[ZygoteLink]:
    made = config(tmp_path, "n0", preload=("torch",))
    environment = zygote_environment(made)
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    link = ZygoteLink.start(sys.executable, environment, tmp_path / "zygote.err", tmp_path)
    link.prepare(made.preload, {})
    await link.ready()
    yield link
    link.close()
    await asyncio.to_thread(link.process.wait)


@pytest.fixture
async def peer() -> AsyncIterator[Agent]:
    async with agents() as (served,):
        yield served


def request_for(**fields: Any) -> PreflightRequest:
    return replace(PreflightRequest("cpu", (), 0, time.time()), **fields)


async def test_a_healthy_node_passes_quickly(zygote: ZygoteLink, peer: Agent, tmp_path: Path) -> None:
    reached = tuple(PreflightPeer(name, name, peer.address) for name in ("n1", "n2"))
    found = await Preflight().check_job(zygote, tmp_path, request_for(peers=reached, memory_bytes=1 << 20))
    assert (found.failed, found.unreached, found.notes) == ((), (), ()) and found.seconds < 3
    assert not any(name.startswith("preflight-") for name in os.listdir(tmp_path))


async def test_a_faulty_core_is_found_in_a_process_of_the_jobs_python(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY_CHECK)
    monkeypatch.setattr(preflight, "TARGET", "faulty:check")
    found = await Preflight().check_job(zygote, tmp_path, request_for())
    assert found.failed and all(what == "device" and "multiplies wrongly" in message for what, message in found.failed)


async def test_the_standby_check_of_cores_is_reused_for_a_while(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Preflight()
    await checks.check_standby(zygote, tmp_path)
    assert checks.standby_report.failed == ()
    monkeypatch.setattr(preflight, "TARGET", "nowhere:check")
    assert (await checks.check_job(zygote, tmp_path, request_for())).notes == (), "the check is not repeated"
    assert "cannot check the devices" in (await Preflight().check_job(zygote, tmp_path, request_for())).notes[0]


async def test_a_check_that_crashes_is_not_held_against_the_node(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text("import os\n\n\ndef check(args, fds):\n    os.kill(os.getpid(), 11)\n")
    monkeypatch.setattr(preflight, "TARGET", "dying:check")
    found = await Preflight().check_job(zygote, tmp_path, request_for())
    assert found.failed == () and "cannot check the devices" in found.notes[0]


async def test_missing_disk_space_memory_and_a_wrong_clock_are_found(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_files, "HUGE_PAGE_SETTING", tmp_path / "none")  # the machine may have small pages
    request = request_for(memory_bytes=2 * node_facts.free_memory_bytes(), requested_s=time.time() + 7200)
    found = await Preflight().check_job(zygote, tmp_path / "missing", request)
    scratch, memory = found.failed
    assert scratch == ("scratch", f"cannot write 64 MiB to {tmp_path}/missing: No such file or directory")
    assert memory[0] == "memory" and "the ranks reserved" in memory[1]
    assert found.notes == ("the clock is 7200 s behind the supervisor's",)


@pytest.mark.parametrize(
    ("chosen", "gib", "count"), [("never", 8, 1), ("deny", 8, 1), ("never", 1, 0), ("advise", 8, 0), ("", 8, 0)]
)
async def test_small_pages_are_noted_for_a_job_with_much_memory(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, gib: int, count: int
) -> None:
    setting = tmp_path / "shmem_enabled"
    if chosen:
        setting.write_text("always within_size advise never deny force\n".replace(chosen, f"[{chosen}]"))
    monkeypatch.setattr(memory_files, "HUGE_PAGE_SETTING", setting)
    found = await Preflight().check_job(zygote, tmp_path, request_for(memory_bytes=gib << 30))
    assert len([note for note in found.notes if "small pages" in note]) == count
    assert not [what for what, _ in found.failed if what != "memory"]


@needs_root
async def test_a_full_disk_is_found(zygote: ZygoteLink, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m"):
        found = await Preflight().check_job(zygote, tmp_path / "disk", request_for())
    assert found.failed == (("scratch", f"cannot write 64 MiB to {tmp_path}/disk: No space left on device"),)


async def test_a_broken_link_is_reported_with_the_peer(zygote: ZygoteLink, peer: Agent, tmp_path: Path) -> None:
    await echo.echo(peer.address)
    with pytest.raises(TransferError, match="invalid proof"):
        await echo.echo(TransferAddress(peer.address.host, peer.address.port, "0" * 32))
    async with agents() as (gone,):
        pass
    peers = tuple(PreflightPeer(name[0], name, found.address) for name, found in (("gone", gone), ("there", peer)))
    found = await Preflight().check_job(zygote, tmp_path, request_for(peers=peers))
    ((node, message),) = found.unreached
    assert node == "g" and message.startswith(f"cannot reach gone: transfer with 127.0.0.1:{gone.address.port} failed")
    assert found.failed == ()


async def test_a_link_that_fails_once_is_tried_again(
    zygote: ZygoteLink, peer: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[TransferAddress] = []
    real_echo = echo.echo

    async def first_late(address: TransferAddress) -> None:
        if not late:
            late.append(address)
            raise TransferError("no echo within 3 s")
        await real_echo(address)

    monkeypatch.setattr(echo, "echo", first_late)
    peers = (PreflightPeer("n1", "n1", peer.address),)
    found = await Preflight().check_job(zygote, tmp_path, request_for(peers=peers))
    assert late and found.unreached == ()


async def test_a_silent_peer_times_out() -> None:
    with bind_listener("127.0.0.1", None) as silent:
        started = time.monotonic()
        with pytest.raises(TransferError, match="no echo from"):
            await echo.echo(TransferAddress("127.0.0.1", silent.getsockname()[1], ""))
        assert time.monotonic() - started < 4


def test_without_gpus_there_are_no_faults() -> None:
    failed, _ = nvml.broken([])
    assert failed == []
