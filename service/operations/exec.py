"""Commands that people run beside the ranks of a job: where one runs, its output as it comes, its end."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from regroup.service.domain.errors import ConflictError, NotFoundError, RegroupError
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store

_PIECE_BYTES = 64 * 1024
_WAIT_S = 5.0
_RENEW_S = 5.0
"""Whoever reads slowly is still there: the agent is told so this often."""
_GONE_CODE = -9


@dataclass(frozen=True)
class Command:
    """What to run."""

    argv: tuple[str, ...]
    rank: int
    """In whose place."""
    timeout_s: float | None = None
    """It is ended after so long."""
    stdin: bytes = b""


@dataclass(frozen=True)
class Begun:
    """A command that runs."""

    key: str
    job_id: str
    node_id: str
    node: str
    generation: int
    """Whose rank's place it has."""


@dataclass(frozen=True)
class Output:
    """Some bytes of it."""

    stream: str
    """`stdout` or `stderr`."""
    data: bytes


@dataclass(frozen=True)
class Ended:
    """How it ended."""

    code: int
    """Exit code, negative for a signal."""
    why: str
    """`exited`, `timeout`, `ended` (the job is over, or nobody read) or `lost` (its agent or zygote is gone)."""


async def begin(store: Store, cluster: Cluster, job: JobRow, command: Command, *, now: float, actor: str) -> Begun:
    """Start a command in the place of a rank of the newest generation, and note in the job's history who ran what.

    Raises:
        ConflictError: the job has no ranks, or too many commands run on that node.
        NotFoundError: it has no such rank.
        UnavailableError: the rank's node does not answer.
    """
    formed = await store.generations(job.id) if job.state.holds_devices else []
    if not formed:
        raise ConflictError(
            f"job {job.id} is {job.state} and has no node on which a rank runs; `hold_on_failure` keeps the nodes of a "
            "job that fails"
        )
    newest = formed[-1]
    place = next((place for place in newest.ranks if place["rank"] == command.rank), None)
    if place is None:
        last = newest.world_size - 1
        raise NotFoundError(f"job {job.id} has ranks 0 to {last} in generation {newest.number}, not {command.rank}")
    key = uuid.uuid4().hex
    asked = {"command": list(command.argv), "rank": command.rank, "node": place["node_name"]}
    await store.note(job.id, "exec", asked, now=now, actor=actor)
    order = {
        "key": key, "rank": command.rank, "command": list(command.argv), "timeout_s": command.timeout_s,
        "stdin": command.stdin,
    }  # fmt: skip
    generation = await cluster.execute(job.id, place["node_id"], order)
    return Begun(key, job.id, place["node_id"], place["node_name"], generation)


async def follow(cluster: Cluster, begun: Begun) -> AsyncGenerator[Output | Ended | None]:
    """What it writes, as it comes, and its end; None while nothing comes. Left early, it ends the command."""
    at = (begun.job_id, begun.node_id, begun.key)
    renewing = asyncio.ensure_future(_renew(cluster, at))
    ended: Ended | None = None
    try:
        while ended is None:
            try:
                pieces, outcome = await cluster.execution(*at, _PIECE_BYTES, _WAIT_S)
            except RegroupError:  # the agent is gone, and the command with it
                pieces, outcome = (), {"code": _GONE_CODE, "why": "lost"}
            for stream, data in pieces:
                yield Output(stream, data)
            if outcome is not None:
                ended = Ended(int(outcome["code"]), str(outcome["why"]))
                yield ended
            elif not pieces:
                yield None
    finally:
        renewing.cancel()
        if ended is None:
            # Not awaited: whoever closes this stream may be cancelled itself.
            ending = asyncio.ensure_future(_end(cluster, at))
            _ENDING.add(ending)
            ending.add_done_callback(_ENDING.discard)


_ENDING: set["asyncio.Future[None]"] = set()


async def _renew(cluster: Cluster, at: tuple[str, str, str]) -> None:
    while True:
        await asyncio.sleep(_RENEW_S)
        try:
            await cluster.execution(*at, 0, 0.0)
        except RegroupError:
            return  # the reader finds out what it means


async def _end(cluster: Cluster, at: tuple[str, str, str]) -> None:
    try:
        await cluster.end_execution(*at)
    except RegroupError:
        return  # the agent ends by itself what nobody reads
