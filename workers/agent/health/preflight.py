"""Preflight: the check of a node before a job's ranks start there.

It checks that devices compute correctly, that memory and disk space suffice, and that other nodes are reachable. People
read the findings, and the control plane acts on them. The check takes about 20 ms, in parallel with the start.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regroup.workers.agent.transfer import echo
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.agent_records import PreflightPeer, PreflightReport, PreflightRequest
from regroup.workers.os import memory_files, node_facts, nvml
from regroup.workers.zygote.client import TaskFailed, ZygoteDied, ZygoteLink

TARGET = "regroup.workers.zygote.device_check:check"
SCRATCH_BYTES = 64 << 20
"""Smallest disk space for a job's files on a node."""
_LARGE_BYTES = 8 << 30
"""Memory of a job on a node from which on small pages make its restart much slower."""
_DEVICE_S = 20.0
"""Time limit of the device check, which computes 256 rows. A GPU that exceeds it hangs."""
_CLOCK_S = 60.0
_TRIES = 2
"""Number of tries per link. A broken link excludes a node, but a busy node may be late once."""
_VALID_S = 300.0
_BLOCK = b"regroup" * 512


@dataclass
class _Findings:
    """Findings of one check, as in `PreflightReport`."""

    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unreached: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


class Preflight:
    """Runs the checks of one agent. The check of the cores by a standby agent is valid for some minutes."""

    def __init__(self) -> None:
        self.standby_report = PreflightReport()
        """Last findings of the standby check."""
        self._cores: tuple[float, _Findings] | None = None

    async def check_standby(self, zygote: ZygoteLink, scratch: Path) -> None:
        """Check the node while no job runs on it: everything that each job needs."""
        self._cores = None
        self.standby_report = _combine(
            *await asyncio.gather(_check_resources(scratch, 0), self._check_devices(zygote, "cpu", []))
        )

    async def check_job(self, zygote: ZygoteLink, scratch: Path, request: PreflightRequest) -> PreflightReport:
        """Check everything that a job needs on this node."""
        checks: list[Awaitable[_Findings]] = [
            _check_resources(scratch, request.memory_bytes),
            self._check_devices(zygote, request.device, request.indexes),
            *(_check_link(peer) for peer in request.peers),
        ]
        return _combine(_Findings(notes=_clock_notes(request.requested_s)), *await asyncio.gather(*checks))

    async def _check_devices(self, zygote: ZygoteLink, device: str, indexes: Sequence[int]) -> _Findings:
        if device == "cuda":
            return await _check_devices(zygote, device, indexes)
        if (await zygote.ready())["launcher"] == "exec":
            return _Findings()  # the check would import torch again, and the start of the job would wait for that
        if self._cores is not None and time.monotonic() - self._cores[0] < _VALID_S:
            return self._cores[1]
        findings = await _check_devices(zygote, device, indexes)
        self._cores = (time.monotonic(), findings)
        return findings


async def _check_resources(scratch: Path, memory_bytes: int) -> _Findings:
    findings, started = _Findings(), time.monotonic()
    try:
        await asyncio.to_thread(_try_scratch, scratch)
    except OSError as error:
        reason = f"{scratch}: {error.strerror or error}"
        findings.failed.append(("scratch", f"cannot write {SCRATCH_BYTES >> 20} MiB to {reason}"))
    if 0 < (free := node_facts.free_memory_bytes()) < memory_bytes:
        shortage = f"only {free / 2**30:.1f} GiB of memory are free; the ranks reserved {memory_bytes / 2**30:.1f} GiB"
        findings.failed.append(("memory", shortage))
    if memory_bytes >= _LARGE_BYTES and not memory_files.have_huge_pages():
        findings.notes.append(
            f"snapshots have small pages, so a restart takes longer: write advise to {memory_files.HUGE_PAGE_SETTING}"
        )
    findings.seconds = time.monotonic() - started
    return findings


async def _check_devices(zygote: ZygoteLink, device: str, indexes: Sequence[int]) -> _Findings:
    """Check devices in a process of the job's Python. A failure of the process itself says nothing about the node."""
    findings, started = _Findings(), time.monotonic()
    if device == "cuda":
        failed, findings.notes = await asyncio.to_thread(nvml.broken, indexes)
        findings.failed += [("device", message) for message in failed]
    try:
        async with asyncio.timeout(_DEVICE_S):
            done = await zygote.run_task(TARGET, {"device": device, "indexes": list(indexes)})
        findings.failed += [("device", message) for message in done["failed"]]
    except TimeoutError:
        late = f"the device check did not finish within {_DEVICE_S:.0f} s"
        if device == "cuda":
            findings.failed.append(("device", late))
        else:
            findings.notes.append(late)  # a busy core is not a faulty one
    except (TaskFailed, ZygoteDied) as error:
        findings.notes.append(f"cannot check the devices: {error}")
    findings.seconds = time.monotonic() - started
    return findings


async def _check_link(peer: PreflightPeer) -> _Findings:
    findings, started, reason = _Findings(), time.monotonic(), ""
    for _ in range(_TRIES):
        try:
            await echo.echo(peer.address)
            break
        except TransferError as error:
            reason = str(error)
    else:
        findings.unreached.append((peer.node_id, f"cannot reach {peer.name}: {reason}"))
    findings.seconds = time.monotonic() - started
    return findings


def _clock_notes(requested_s: float) -> list[str]:
    """Return a note if this node's clock differs from that of the caller by more than a call takes."""
    ahead_s = time.time() - requested_s
    if abs(ahead_s) < _CLOCK_S:
        return []
    return [f"the clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the supervisor's"]


def _combine(*parts: _Findings) -> PreflightReport:
    """Combine the findings of checks that ran in parallel."""
    return PreflightReport(
        tuple(finding for part in parts for finding in part.failed),
        tuple(finding for part in parts for finding in part.unreached),
        tuple(note for part in parts for note in part.notes),
        max(part.seconds for part in parts),
    )


def _try_scratch(scratch: Path) -> None:
    """Allocate disk space, write a block and read it back."""
    if node_facts.free_bytes(scratch) < SCRATCH_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    path = scratch / f"preflight-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, 1 << 20)
        os.pwrite(fd, _BLOCK, 0)
        if os.pread(fd, len(_BLOCK), 0) != _BLOCK:
            raise OSError("the data read differs from the data written")
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            path.unlink()
