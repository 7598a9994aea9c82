"""Commands that users run next to the ranks of a job: start, output and exit."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError, RegroupError
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store
from regroup.workers.contract.agent_records import CommandExit, CommandOutput, CommandRequest

_PIECE_BYTES = 64 * 1024
_WAIT_S = 5.0
_RENEW_S = 5.0
"""Interval at which the server renews a command, so that the agent does not kill it while a client reads slowly."""
_LOST_CODE = -9


@dataclass(frozen=True)
class Command:
    """Command to run."""

    argv: tuple[str, ...]
    rank: int
    """Rank whose environment and folder the command gets."""
    timeout_s: float | None = None
    """Time after which the agent kills the command."""
    stdin: bytes = b""


@dataclass(frozen=True)
class RunningCommand:
    """A command that was started."""

    key: str
    job_id: str
    node_id: str
    node: str
    generation: int
    """Generation of the rank."""


@dataclass(frozen=True)
class Output:
    """Bytes that the command wrote."""

    stream: str
    """`stdout` or `stderr`."""
    data: bytes


async def start_command(
    store: Store, cluster: Cluster, job: JobRow, command: Command, *, now: float, author: Author
) -> RunningCommand:
    """Start a command next to a rank of the newest generation, and record it in the job's history.

    Raises:
        ConflictError: the job has no ranks, or too many commands run on that node.
        NotFoundError: the job has no such rank.
        UnavailableError: the rank's node does not answer.
    """
    newest, _ = await store.newest_generation_and_incidents(job.id)
    if newest is None or not job.state.has_allocations:
        raise ConflictError(
            f"job {job.id} is {job.state} and has no node on which a rank runs; `hold_on_failure` retains the nodes of "
            "a failed job"
        )
    place = next((place for place in newest.ranks if place["rank"] == command.rank), None)
    if place is None:
        last = newest.world_size - 1
        raise NotFoundError(
            f"job {job.id} has no rank {command.rank}: generation {newest.number} has ranks 0 to {last}"
        )
    key = uuid.uuid4().hex
    record = {**recorded_command(command.argv), "rank": command.rank, "node": place["node_name"]}
    await store.note(job.id, "exec", record, now=now, author=author)
    request = CommandRequest(key, command.rank, command.argv, command.timeout_s, command.stdin)
    generation = await cluster.execute(job.id, place["node_id"], request)
    return RunningCommand(key, job.id, place["node_id"], place["node_name"], generation)


def recorded_command(argv: Sequence[str]) -> dict[str, Any]:
    """Return what the job's history shows of a command: its program, and how many arguments it had.

    An argument may be a password, and the server does not know the secrets of the nodes.
    """
    return {"command": argv[0], "arguments": len(argv) - 1}


async def follow_command(cluster: Cluster, command: RunningCommand) -> AsyncGenerator[Output | CommandExit | None]:
    """Yield the command's output and its exit; None while there is no output. Closing the generator kills the command.

    Raises no error if the agent is lost: the exit is then `lost`.
    """
    address = (command.job_id, command.node_id, command.key)
    renewal = asyncio.ensure_future(_renew(cluster, address))
    ended: CommandExit | None = None
    try:
        while ended is None:
            try:
                output = await cluster.execution(*address, _PIECE_BYTES, _WAIT_S)
            except RegroupError:  # the agent and the command are gone
                output = CommandOutput(ended=CommandExit(_LOST_CODE, "lost"))
            for stream, data in output.pieces:
                yield Output(stream, data)
            if output.ended is not None:
                ended = output.ended
                yield ended
            elif not output.pieces:
                yield None
    finally:
        renewal.cancel()
        if ended is None:
            # Not awaited: the task that closes this stream may be cancelled.
            kill = asyncio.ensure_future(_kill(cluster, address))
            _PENDING_KILLS.add(kill)
            kill.add_done_callback(_PENDING_KILLS.discard)


_PENDING_KILLS: set["asyncio.Future[None]"] = set()


async def _renew(cluster: Cluster, address: tuple[str, str, str]) -> None:
    while True:
        await asyncio.sleep(_RENEW_S)
        try:
            await cluster.execution(*address, 0, 0.0)
        except RegroupError:
            return  # the next read reports the error


async def _kill(cluster: Cluster, address: tuple[str, str, str]) -> None:
    try:
        await cluster.end_execution(*address)
    except RegroupError:
        return  # the agent kills a command that no client reads
