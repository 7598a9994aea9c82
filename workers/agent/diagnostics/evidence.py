"""Evidence that this node has of the end of a generation, for its incident.

Collecting evidence must not delay a recovery. Before ranks are killed, `capture` only reads shared pages and the
kernel. `inspect` also sends requests to the ranks; it serves ends that allow a delay: a hang, or the end of the job.
The evidence stays in memory until training continues. Then `upload` adds the output of the ranks and writes all of it
to durable storage.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup.workers.agent.diagnostics import process_stats
from regroup.workers.agent.ranks.rank_group import RankGroup, stacks_path
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import RankInspection, RankStack
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Failed, Message
from regroup.workers.environment.redaction import Redactor
from regroup.workers.os import stacks
from regroup.workers.storage import fsspec_storage

FOLDER = "evidence"
"""Folder below a job's storage, with a folder for each incident and a file for each node."""
LOG_LINES = 50
_LOG_BYTES = 16 * 1024
_STACK_CHARACTERS = 64 * 1024
_MAX_GENERATIONS = 8
"""Number of generations whose evidence is retained. Further ones that end without a step repeat the same failure."""
_CRASH_BYTES = 32 * 1024
_CRASH_CHARACTERS = 12_000
_CRASHES = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL})
_MODULES = "Extension modules: "
"""Start of the last line of a dump of `faulthandler`: a list of up to a hundred names."""
_RECENT_S = 15.0
"""Age above which an inspection belongs to an earlier hang, from which the ranks recovered by themselves."""
_QUICK_GPUS_S, _GPUS_S = 2.0, 8.0
_COLLECTIVES_TIMEOUT_S = 2.0
"""As long as the stacks, which are requested at the same time, may take."""
_PACKET_BYTES = 160 * 1024


@dataclass(frozen=True)
class _Inspection:
    generation: int
    time_s: float
    ranks: Mapping[int, RankInspection]
    gpus: list[dict[str, str]]


@dataclass(frozen=True)
class _Captured:
    facts: dict[str, Any]
    messages: Sequence[Message]
    """Messages of the ranks. The list grows until the last rank is dead and contains their final messages."""
    logs: Mapping[str, Path]
    """Rank → path of its output, without suffix."""


class Evidence:
    """Evidence of the newest generations that ended on this node."""

    def __init__(self, config: AgentConfig, scratch: Path, redactor: Redactor) -> None:
        self._config, self._scratch, self._redactor = config, scratch, redactor
        self._inspection: _Inspection | None = None
        self._captured: dict[int, _Captured] = {}
        """Generation → its evidence."""
        self._uploaded_bytes: dict[int, int] = {}
        """Generation → bytes that were uploaded, for a repeated request."""

    async def dump_stacks(self, group: RankGroup | None, pids: Mapping[int, int | None]) -> Mapping[int, RankStack]:
        """Return rank → its position and stacks, of the live ranks. A rank that does not answer has an empty stack
        after 2 s."""
        live = _live_pids(group, pids)
        paths = [stacks_path(self._scratch, group.generation, rank) for rank in live] if group is not None else []
        requests = (
            asyncio.to_thread(stacks.request, pid, path) for pid, path in zip(live.values(), paths, strict=True)
        )
        texts = await asyncio.gather(*requests)
        phases = group.phases() if group is not None else {}
        return {
            rank: RankStack(self._config.node_name, pid, phases.get(rank), self._redactor.hide(text))
            for (rank, pid), text in zip(live.items(), texts, strict=True)
        }

    async def inspect(self, group: RankGroup | None, pids: Mapping[int, int | None]) -> Mapping[int, RankInspection]:
        """Return rank → its position, stacks and latest collectives. Retain them as evidence."""
        if group is None:
            return {}
        live = list(_live_pids(group, pids))
        stacks_by_rank, collectives, gpus = await asyncio.gather(
            self.dump_stacks(group, pids),
            asyncio.gather(
                *(asyncio.to_thread(request_collectives, group.ranks[rank].collectives_sock) for rank in live)
            ),
            _gpus(_QUICK_GPUS_S),
        )
        ranks = {
            rank: RankInspection(**vars(stacks_by_rank[rank]), collectives=self._redactor.hide_all(entered))
            for rank, entered in zip(live, collectives, strict=True)
            if rank in stacks_by_rank
        }
        self._inspection = _Inspection(group.generation, time.monotonic(), ranks, gpus)
        return ranks

    def capture(self, group: RankGroup | None, pids: Mapping[int, int | None]) -> None:
        """Capture the facts that cost nothing to read. Call this before the ranks of a generation are killed."""
        if group is None:
            return
        inspections, gpus = self._recent_inspection(group.generation)
        phases = group.phases()
        ranks: dict[str, dict[str, Any]] = {}
        for rank, local in sorted(group.ranks.items()):
            pid, inspection, (step, phase) = pids.get(rank), inspections.get(rank), phases[rank]
            ranks[str(rank)] = {
                "pid": pid,
                "step": step,
                "phase": phase,
                "stalled_s": round(local.progress.age_s(), 3),
                "usual_s": round(local.progress.usual()[1], 3),
                "exit_code": local.exit_code,
                "uses": process_stats.process(pid) if pid is not None and local.exit_code is None else {},
                "was_inspected": inspection is not None,
                "stacks": inspection.text[-_STACK_CHARACTERS:] if inspection is not None else "",
                "collectives": inspection.collectives if inspection is not None else None,
            }
        facts = {
            "node": self._config.node_name,
            "node_id": self._config.node_id,
            "generation": group.generation,
            "captured_s": time.time(),
            "host": process_stats.host(),
            "gpus": gpus,
            "ranks": ranks,
        }
        logs = {str(rank): local.log for rank, local in group.ranks.items()}
        self._captured[group.generation] = _Captured(facts, group.messages, logs)
        for old in sorted(self._captured)[:-_MAX_GENERATIONS]:
            del self._captured[old]

    async def upload(self, generation: int, incident: str) -> int:
        """Upload the evidence of a generation and release it. Return the number of bytes, 0 if there is no evidence.

        Raises:
            StorageError: durable storage refused. The evidence is retained.
        """
        if (captured := self._captured.get(generation)) is None:
            return self._uploaded_bytes.get(generation, 0)
        captured.facts["gpus"] = captured.facts["gpus"] or await _gpus(_GPUS_S)
        uri = fsspec_storage.join(self._config.storage_uri, FOLDER, incident, f"{self._config.node_id}.json")
        self._uploaded_bytes[generation] = await asyncio.to_thread(_publish, uri, captured, self._redactor)
        self._captured.pop(generation, None)
        return self._uploaded_bytes[generation]

    def remove(self, incidents: Sequence[str]) -> None:
        """Remove the evidence of these incidents from durable storage, of all nodes. Blocking.

        Raises:
            StorageUnavailable: storage did not answer.
        """
        for incident in incidents:
            fsspec_storage.remove(fsspec_storage.join(self._config.storage_uri, FOLDER, incident))

    def _recent_inspection(self, generation: int) -> tuple[Mapping[int, RankInspection], list[dict[str, str]]]:
        """Return the last inspection of the ranks and GPUs, if it belongs to the current hang."""
        last = self._inspection
        if last is None or last.generation != generation or time.monotonic() - last.time_s > _RECENT_S:
            return {}, []
        return last.ranks, last.gpus


def request_collectives(sock: socket.socket, timeout_s: float = _COLLECTIVES_TIMEOUT_S) -> list[dict[str, Any]] | None:
    """Request the collectives that the rank at the other end entered last. Blocking.

    Return the oldest first; None if the rank does not answer in time. The rank answers in
    `workers/rank/flight_recorder.py`.
    """
    try:
        with contextlib.suppress(BlockingIOError):
            while sock.recv(_PACKET_BYTES):  # a late answer to an earlier request
                pass
        sock.send(b"?")
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        data = sock.recv(_PACKET_BYTES) if poll.poll(timeout_s * 1000) else b""
        return json.loads(data) if data else None
    except (OSError, ValueError):
        return None  # the rank has ended


def crash_output(log: Path, code: int) -> str:
    """Return the end of the standard error of a rank that crashed: the cause that libraries print, and Python's stacks.

    Return nothing for any other exit code.
    """
    if code not in _CRASHES:
        return ""
    lines = _end(log, "err", _CRASH_BYTES).splitlines()
    return "\n".join(line for line in lines if not line.startswith(_MODULES))[-_CRASH_CHARACTERS:]


def _live_pids(group: RankGroup | None, pids: Mapping[int, int | None]) -> dict[int, int]:
    ranks = group.running() if group is not None else ()
    return {rank: pid for rank in ranks if (pid := pids.get(rank)) is not None}


async def _gpus(within_s: float) -> list[dict[str, str]]:
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(asyncio.to_thread(process_stats.gpus), within_s)
    return []


def _publish(uri: str, captured: _Captured, redactor: Redactor) -> int:
    failures = [message for message in captured.messages if isinstance(message, Failed)]
    errors = {str(failed.rank): plain(failed.error) for failed in failures}
    entered = {str(failed.rank): failed.collectives for failed in failures if failed.collectives}
    ranks = {
        rank: {
            **facts,
            "collectives": facts["collectives"] or entered.get(rank),
            "error": errors.get(rank),
            "stdout": _tail(log, "out"),
            "stderr": _tail(log, "err"),
        }
        for (rank, facts), log in zip(captured.facts["ranks"].items(), captured.logs.values(), strict=True)
    }
    data = json.dumps({**captured.facts, "ranks": redactor.hide_all(ranks)}).encode()
    fsspec_storage.publish_bytes(uri, data)
    return len(data)


def _tail(log: Path, suffix: str) -> str:
    """Return the last lines of a rank's output."""
    return "\n".join(_end(log, suffix, _LOG_BYTES).splitlines()[-LOG_LINES:])


def _end(log: Path, suffix: str, size_bytes: int) -> str:
    try:
        with Path(f"{log}.{suffix}").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
