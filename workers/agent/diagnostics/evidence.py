"""What this node knows of a generation that ended, for its incident.

Taking it must not delay a recovery: before ranks are killed, `note` only reads shared pages and the kernel. `look` also
asks the ranks, for ends that nobody waits for: a hang, or the end of the job. What comes of it is held here until
training goes on; then `leave` adds the output of the ranks and puts all of it into durable storage.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup.workers.agent.diagnostics import flight_recorder, process_stats
from regroup.workers.agent.ranks.rank_group import RankGroup, stacks_path
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import RankInspection, RankStack
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Failed, Message
from regroup.workers.os import stacks
from regroup.workers.storage import fsspec_storage

FOLDER = "evidence"
"""Below a job's storage: a folder for each incident, with a file for each node."""
LOG_LINES = 50
_LOG_BYTES = 16 * 1024
_STACK_CHARACTERS = 64 * 1024
_GENERATIONS = 8
"""So many are held at most: more that end without a step between them tell nothing new."""
_LAST_WORDS_CHARACTERS = 2_000
_FRESH_S = 15.0
"""A look that was longer ago belongs to a standstill that went on by itself."""
_QUICK_GPUS_S, _GPUS_S = 2.0, 8.0


@dataclass(frozen=True)
class _Looked:
    generation: int
    at_s: float
    places: Mapping[int, RankInspection]
    gpus: list[dict[str, str]]


@dataclass(frozen=True)
class _Held:
    seen: dict[str, Any]
    said: Sequence[Message]
    """Grows until the last rank is dead: what they said of their ends is in it."""
    logs: Mapping[str, Path]
    """Rank → where its output went, without suffix."""


class Evidence:
    """Of the newest generations that ended here."""

    def __init__(self, config: AgentConfig, scratch: Path) -> None:
        self._config, self._scratch = config, scratch
        self._looked: _Looked | None = None
        self._held: dict[int, _Held] = {}
        """Generation → what was noted of it."""
        self._left: dict[int, int] = {}
        """Generation → bytes that were left of it: who asks again is told so."""

    async def places(self, formation: RankGroup | None, pids: Mapping[int, int | None]) -> Mapping[int, RankStack]:
        """Rank → where it is now. Of living ranks; for one that does not answer, two seconds are waited."""
        living = _living(formation, pids)
        paths = [stacks_path(self._scratch, rank) for rank in living]
        asked = (asyncio.to_thread(stacks.request, pid, path) for pid, path in zip(living.values(), paths, strict=True))
        texts = await asyncio.gather(*asked)
        phases = formation.phases() if formation is not None else {}
        return {
            rank: RankStack(self._config.node_name, pid, phases.get(str(rank)), text)
            for (rank, pid), text in zip(living.items(), texts, strict=True)
        }

    async def look(self, formation: RankGroup | None, pids: Mapping[int, int | None]) -> Mapping[int, RankInspection]:
        """Likewise, with the `collectives` that each rank entered last, kept as evidence."""
        if formation is None:
            return {}
        living = list(_living(formation, pids))
        stacks_of, entered, gpus = await asyncio.gather(
            self.places(formation, pids),
            asyncio.gather(*(asyncio.to_thread(flight_recorder.ask, formation.ranks[rank].asking) for rank in living)),
            _gpus(_QUICK_GPUS_S),
        )
        places = {
            rank: RankInspection(**vars(stacks_of[rank]), collectives=told)
            for rank, told in zip(living, entered, strict=True)
            if rank in stacks_of
        }
        self._looked = _Looked(formation.generation, time.monotonic(), places, gpus)
        return places

    def note(self, formation: RankGroup | None, pids: Mapping[int, int | None]) -> None:
        """Keep what costs nothing to read: call it before the ranks of a generation are killed."""
        if formation is None:
            return
        places, gpus = self._just_seen(formation.generation)
        phases = formation.phases()
        ranks: dict[str, dict[str, Any]] = {}
        for rank, local in sorted(formation.ranks.items()):
            pid, seen, (step, phase) = pids.get(rank), places.get(rank), phases[str(rank)]
            ranks[str(rank)] = {
                "pid": pid,
                "step": step,
                "phase": phase,
                "stalled_s": round(local.progress.age_s(), 3),
                "usual_s": round(local.progress.usual()[1], 3),
                "exit_code": local.exit_code,
                "uses": process_stats.process(pid) if pid is not None and local.exit_code is None else {},
                "was_asked": seen is not None,
                "stacks": seen.text[-_STACK_CHARACTERS:] if seen is not None else "",
                "collectives": seen.collectives if seen is not None else None,
            }
        noted = {
            "node": self._config.node_name,
            "node_id": self._config.node_id,
            "generation": formation.generation,
            "noted_s": time.time(),
            "host": process_stats.host(),
            "gpus": gpus,
            "ranks": ranks,
        }
        logs = {str(rank): local.log for rank, local in formation.ranks.items()}
        self._held[formation.generation] = _Held(noted, formation.said, logs)
        for old in sorted(self._held)[:-_GENERATIONS]:
            del self._held[old]

    async def leave(self, generation: int, incident: str) -> int:
        """Write what is held of a generation into durable storage, and hold it no longer; returns bytes, 0 if nothing
        is held.

        Raises:
            StorageError: durable storage refused; it is held on.
        """
        if (held := self._held.get(generation)) is None:
            return self._left.get(generation, 0)
        held.seen["gpus"] = held.seen["gpus"] or await _gpus(_GPUS_S)
        uri = fsspec_storage.join(self._config.storage_uri, FOLDER, incident, f"{self._config.node_id}.json")
        self._left[generation] = await asyncio.to_thread(_publish, uri, held)
        self._held.pop(generation, None)
        return self._left[generation]

    def remove(self, incidents: Sequence[str]) -> None:
        """Give up what was left of these incidents, by any node. Blocking.

        Raises:
            StorageUnavailable: storage did not answer.
        """
        for incident in incidents:
            fsspec_storage.remove(fsspec_storage.join(self._config.storage_uri, FOLDER, incident))

    def _just_seen(self, generation: int) -> tuple[Mapping[int, RankInspection], list[dict[str, str]]]:
        """What the ranks said when they were asked, if that was in this standstill and not in one that went on."""
        looked = self._looked
        if looked is None or looked.generation != generation or time.monotonic() - looked.at_s > _FRESH_S:
            return {}, []
        return looked.places, looked.gpus


def _living(formation: RankGroup | None, pids: Mapping[int, int | None]) -> dict[int, int]:
    ranks = formation.running() if formation is not None else ()
    return {rank: pid for rank in ranks if (pid := pids.get(rank)) is not None}


async def _gpus(within_s: float) -> list[dict[str, str]]:
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(asyncio.to_thread(process_stats.gpus), within_s)
    return []


def _publish(uri: str, held: _Held) -> int:
    errors = {str(said.rank): plain(said.error) for said in held.said if isinstance(said, Failed)}
    raised = {str(said.rank): said.collectives for said in held.said if isinstance(said, Failed) and said.collectives}
    ranks = {
        rank: {
            **seen,
            "collectives": seen["collectives"] or raised.get(rank),
            "error": errors.get(rank),
            "stdout": _tail(log, "out"),
            "stderr": _tail(log, "err"),
        }
        for (rank, seen), log in zip(held.seen["ranks"].items(), held.logs.values(), strict=True)
    }
    data = json.dumps({**held.seen, "ranks": ranks}).encode()
    fsspec_storage.publish_bytes(uri, data)
    return len(data)


def last_words(log: Path, code: int) -> str:
    """What a rank that aborted left on its standard error, where libraries say why; nothing of any other end."""
    return _tail(log, "err")[-_LAST_WORDS_CHARACTERS:] if code == -signal.SIGABRT else ""


def _tail(log: Path, suffix: str) -> str:
    """The last lines of a rank's output."""
    try:
        with Path(f"{log}.{suffix}").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return ""
