"""The check of a node before a job's first ranks there: devices compute right, there is room, others are reached.

What is found is for people to read and for the control plane to act on. It takes some 20 ms, beside what a start does
anyway.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regroup.workers.agent.snapshots import shard_transfer
from regroup.workers.agent.snapshots.shard_transfer import TransferError
from regroup.workers.contract.agent_records import PreflightPeer, PreflightReport, PreflightRequest
from regroup.workers.os import node_facts, nvml
from regroup.workers.zygote.client import TaskFailed, ZygoteDied, ZygoteLink

TARGET = "regroup.workers.zygote.device_check:check"
SCRATCH_BYTES = 64 << 20
"""Room that a job's files on a node need at least."""
_DEVICE_S = 20.0
"""A GPU that has not computed 256 rows by then hangs."""
_CLOCK_S = 60.0
_TRIES = 2
"""Of a link: a node is given up for one that is broken, and whoever is only busy may be late once."""
_GOOD_FOR_S = 300.0
_BLOCK = b"regroup" * 512


@dataclass
class _Findings:
    """What a check has found, as in `PreflightReport`."""

    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unreached: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


class Preflight:
    """The checks of one agent. What was found of cores while it waited for a job is good for some minutes."""

    def __init__(self) -> None:
        self.waiting = PreflightReport()
        """What was found last while no job was here."""
        self._cores: tuple[float, _Findings] | None = None

    async def while_waiting(self, zygote: ZygoteLink, scratch: Path) -> None:
        """Check what every job needs."""
        self._cores = None
        self.waiting = _together(*await asyncio.gather(_check_room(scratch, 0), self._check_devices(zygote, "cpu", [])))

    async def before_ranks(self, zygote: ZygoteLink, scratch: Path, request: PreflightRequest) -> PreflightReport:
        """Check what a job needs here."""
        checks: list[Awaitable[_Findings]] = [
            _check_room(scratch, request.memory_bytes),
            self._check_devices(zygote, request.device, request.indexes),
            *(_check_link(peer) for peer in request.peers),
        ]
        return _together(_Findings(notes=_clock_notes(request.requested_s)), *await asyncio.gather(*checks))

    async def _check_devices(self, zygote: ZygoteLink, device: str, indexes: Sequence[int]) -> _Findings:
        if device == "cuda":
            return await _check_devices(zygote, device, indexes)
        if (await zygote.ready())["launcher"] == "exec":
            return _Findings()  # it would import anew first, and the job's start would wait for that
        if self._cores is not None and time.monotonic() - self._cores[0] < _GOOD_FOR_S:
            return self._cores[1]
        findings = await _check_devices(zygote, device, indexes)
        self._cores = (time.monotonic(), findings)
        return findings


async def _check_room(scratch: Path, memory_bytes: int) -> _Findings:
    findings, started = _Findings(), time.monotonic()
    try:
        await asyncio.to_thread(_use, scratch)
    except OSError as error:
        reason = f"{scratch}: {error.strerror or error}"
        findings.failed.append(("scratch", f"{SCRATCH_BYTES >> 20} MiB cannot be written to {reason}"))
    if 0 < (free := node_facts.free_memory_bytes()) < memory_bytes:
        gib = (
            f"{free / 2**30:.1f} GiB of memory are free, and {memory_bytes / 2**30:.1f} GiB were promised to its ranks"
        )
        findings.failed.append(("memory", gib))
    findings.seconds = time.monotonic() - started
    return findings


async def _check_devices(zygote: ZygoteLink, device: str, indexes: Sequence[int]) -> _Findings:
    """In a process of the job's Python. What that cannot do says nothing of the node."""
    findings, started = _Findings(), time.monotonic()
    if device == "cuda":
        failed, findings.notes = await asyncio.to_thread(nvml.broken, indexes)
        findings.failed += [("device", message) for message in failed]
    try:
        async with asyncio.timeout(_DEVICE_S):
            done = await zygote.run_task(TARGET, {"device": device, "indexes": list(indexes)})
        findings.failed += [("device", message) for message in done["failed"]]
    except TimeoutError:
        late = f"its devices had not computed anything after {_DEVICE_S:.0f} s"
        if device == "cuda":
            findings.failed.append(("device", late))
        else:
            findings.notes.append(late)  # a busy core is none that lies
    except (TaskFailed, ZygoteDied) as error:
        findings.notes.append(f"its devices could not be checked: {error}")
    findings.seconds = time.monotonic() - started
    return findings


async def _check_link(peer: PreflightPeer) -> _Findings:
    findings, started, said = _Findings(), time.monotonic(), ""
    for _ in range(_TRIES):
        try:
            await shard_transfer.echo(peer.address)
            break
        except TransferError as error:
            said = str(error)
    else:
        findings.unreached.append((peer.node_id, f"it does not reach {peer.name}: {said}"))
    findings.seconds = time.monotonic() - started
    return findings


def _clock_notes(asked_s: float) -> list[str]:
    """Whether this node's clock is another than that of who asked, by more than a call takes."""
    ahead_s = time.time() - asked_s
    if abs(ahead_s) < _CLOCK_S:
        return []
    return [f"its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} its supervisor's"]


def _together(*parts: _Findings) -> PreflightReport:
    """They were made side by side."""
    return PreflightReport(
        tuple(finding for part in parts for finding in part.failed),
        tuple(finding for part in parts for finding in part.unreached),
        tuple(note for part in parts for note in part.notes),
        max(part.seconds for part in parts),
    )


def _use(scratch: Path) -> None:
    """Take room, write and read back."""
    if node_facts.free_bytes(scratch) < SCRATCH_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    path = scratch / f"preflight-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, 1 << 20)
        os.pwrite(fd, _BLOCK, 0)
        if os.pread(fd, len(_BLOCK), 0) != _BLOCK:
            raise OSError("what is read is not what was written")
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            path.unlink()
