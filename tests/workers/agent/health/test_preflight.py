"""What a node finds wrong with itself before ranks start: with a real zygote, real sockets and a real full disk."""

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
from regroup.workers.agent.snapshots import shard_transfer
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.agent.snapshots.mirror_store import MirrorStore
from regroup.workers.agent.snapshots.shard_transfer import ShardTransfer, TransferError
from regroup.workers.contract.agent_records import PreflightPeer, PreflightRequest, TransferAddress
from regroup.workers.environment.process_env import zygote_environment
from regroup.workers.os import node_facts, nvml
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.zygote.client import ZygoteLink
from tests.support.machines.small_disk import needs_root, small_disk
from tests.workers.agent.test_job_host import config

LYING = """
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
async def peer() -> AsyncIterator[ShardTransfer]:
    served = ShardTransfer("127.0.0.1", bind_listener("127.0.0.1", None), MirrorStore(BufferPool()))
    yield served
    await served.close()


def order(**fields: Any) -> PreflightRequest:
    return replace(PreflightRequest("cpu", (), 0, time.time()), **fields)


async def test_a_fit_node_passes_soon(zygote: ZygoteLink, peer: ShardTransfer, tmp_path: Path) -> None:
    reached = tuple(PreflightPeer(name, name, peer.address) for name in ("n1", "n2"))
    found = await Preflight().before_ranks(zygote, tmp_path, order(peers=reached, memory_bytes=1 << 20))
    assert (found.failed, found.unreached, found.notes) == ((), (), ()) and found.seconds < 3
    assert not any(name.startswith("preflight-") for name in os.listdir(tmp_path))


async def test_a_core_that_lies_is_found_in_a_process_of_the_jobs_python(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lying.py").write_text(LYING)
    monkeypatch.setattr(preflight, "TARGET", "lying:check")
    found = await Preflight().before_ranks(zygote, tmp_path, order())
    assert found.failed and all(what == "device" and "multiplies wrongly" in said for what, said in found.failed)


async def test_what_was_found_of_cores_while_waiting_is_good_for_a_while(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Preflight()
    await made.while_waiting(zygote, tmp_path)
    assert made.waiting.failed == ()
    monkeypatch.setattr(preflight, "TARGET", "nowhere:check")
    assert (await made.before_ranks(zygote, tmp_path, order())).notes == (), "not asked again"
    assert "could not be checked" in (await Preflight().before_ranks(zygote, tmp_path, order())).notes[0]


async def test_a_python_that_cannot_check_says_nothing_of_its_node(
    zygote: ZygoteLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text("import os\n\n\ndef check(args, fds):\n    os.kill(os.getpid(), 11)\n")
    monkeypatch.setattr(preflight, "TARGET", "dying:check")
    found = await Preflight().before_ranks(zygote, tmp_path, order())
    assert found.failed == () and "could not be checked" in found.notes[0]


async def test_no_room_no_memory_another_clock(zygote: ZygoteLink, tmp_path: Path) -> None:
    asked = order(memory_bytes=2 * node_facts.free_memory_bytes(), requested_s=time.time() + 7200)
    found = await Preflight().before_ranks(zygote, tmp_path / "missing", asked)
    scratch, memory = found.failed
    assert scratch == ("scratch", f"64 MiB cannot be written to {tmp_path}/missing: No such file or directory")
    assert memory[0] == "memory" and "GiB were promised to its ranks" in memory[1]
    assert found.notes == ("its clock is 7200 s behind its supervisor's",)


@needs_root
async def test_a_full_disk_is_found(zygote: ZygoteLink, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m"):
        found = await Preflight().before_ranks(zygote, tmp_path / "disk", order())
    assert found.failed == (("scratch", f"64 MiB cannot be written to {tmp_path}/disk: No space left on device"),)


async def test_an_echo_comes_back_whole_and_a_broken_link_is_named(
    zygote: ZygoteLink, peer: ShardTransfer, tmp_path: Path
) -> None:
    await shard_transfer.echo(peer.address)
    with pytest.raises(TransferError, match="proof is wrong"):
        await shard_transfer.echo(TransferAddress(peer.address.host, peer.address.port, "0" * 32))
    gone = ShardTransfer("127.0.0.1", bind_listener("127.0.0.1", None), MirrorStore(BufferPool()))
    await gone.close()
    peers = tuple(PreflightPeer(name[0], name, found.address) for name, found in (("gone", gone), ("there", peer)))
    found = await Preflight().before_ranks(zygote, tmp_path, order(peers=peers))
    ((node, message),) = found.unreached
    assert node == "g" and message.startswith(f"it does not reach gone: exchange with 127.0.0.1:{gone.address.port}")
    assert found.failed == ()


async def test_a_link_that_fails_once_is_tried_again(
    zygote: ZygoteLink, peer: ShardTransfer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[TransferAddress] = []
    echo = shard_transfer.echo

    async def first_late(address: TransferAddress) -> None:
        if not late:
            late.append(address)
            raise TransferError("no echo in 3 s")
        await echo(address)

    monkeypatch.setattr(shard_transfer, "echo", first_late)
    peers = (PreflightPeer("n1", "n1", peer.address),)
    found = await Preflight().before_ranks(zygote, tmp_path, order(peers=peers))
    assert late and found.unreached == ()


async def test_a_peer_that_listens_and_says_nothing_is_not_waited_for() -> None:
    with bind_listener("127.0.0.1", None) as mute:
        started = time.monotonic()
        with pytest.raises(TransferError, match="no echo from"):
            await shard_transfer.echo(TransferAddress("127.0.0.1", mute.getsockname()[1], ""))
        assert time.monotonic() - started < 4


def test_without_a_driver_there_is_nothing_to_say_of_gpus() -> None:
    failed, _ = nvml.broken([])
    assert failed == []
