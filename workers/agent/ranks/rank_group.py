"""The ranks of one generation on one node: their processes, sockets and progress pages."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regroup.workers.agent.ranks import state_replies
from regroup.workers.agent.ranks.activity import ActivityMonitor, RunningRank
from regroup.workers.agent.ranks.rank_lease import RankLease
from regroup.workers.agent.ranks.state_replies import RankState, StateMessage
from regroup.workers.contract.messages import (
    AgentRequest,
    Begin,
    Done,
    Failed,
    FaultDue,
    FaultGranted,
    Join,
    Message,
    Note,
    Phase,
    Prepared,
    Report,
    Restore,
    StepRow,
    decode,
    encode,
)
from regroup.workers.contract.progress_page import ProgressPage, new_page
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.contract.rank_env import is_script
from regroup.workers.contract.state_messages import (
    BuffersRequest,
    SourceReleaseRequest,
    StateCatalogRequest,
    StateRequest,
)
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink
from regroup.workers.zygote.launch import Launch

_PACKET_BYTES = 160 * 1024
_MOST_FDS = 8
"""Descriptors that a packet of a rank may carry."""
RANK_TARGET = "regroup.workers.rank.main:main"


@dataclass
class LocalRank:
    """One rank of the generation on this node, from the agent's side."""

    rank: int
    child: int
    """The zygote's id of its process."""
    sock: socket.socket
    collectives_sock: socket.socket
    """Socket for requests of its latest collectives."""
    progress: ProgressPage
    log: Path
    """Path stem of its output."""
    is_script: bool
    """The rank is done when it exits with code 0, even without a `Done`."""
    exit_code: int | None = None


class RankGroup:
    """Forks a generation's ranks and exchanges messages with them until all are dead."""

    def __init__(
        self,
        generation: int,
        zygote: ZygoteLink,
        lease: RankLease,
        on_message: Callable[[Message], None],
        state: RankState | None,
        authorize_fault: Callable[[FaultDue], Awaitable[bool]],
        redact: Callable[[Message], Message],
        earlier_first_s: Mapping[str, float] | None = None,
    ) -> None:
        """Initialize the group; fork no rank.

        Args:
            generation: number of the generation.
            zygote: zygote from which the ranks are forked.
            lease: lease of the ranks.
            on_message: called with each message for the supervisor.
            state: buffers and saved state of the ranks; None: the ranks are prepared, and get it when they begin.
            authorize_fault: returns True if a fault that is due may be injected.
            redact: removes secrets from a message of a rank.
            earlier_first_s: phase → its longest first visit in earlier generations on this node, in seconds.
        """
        self.generation = generation
        self._earlier_first_s = dict(earlier_first_s or {})
        self.ranks: dict[int, LocalRank] = {}
        self.messages: list[Message] = []
        """All messages except step rows, for a supervisor that restarts."""
        self.first_row: StepRow | None = None
        self.newest_row: StepRow | None = None
        self.is_terminating = False
        """The ranks got SIGTERM: how they end now is planned."""
        self._zygote, self._lease, self._redact = zygote, lease, redact
        self._is_orphaned = False
        lease.restart()
        self._on_message, self._state, self._authorize_fault = on_message, state, authorize_fault
        self._loop = asyncio.get_running_loop()
        self._replies: set[asyncio.Task[None]] = set()
        self._activity_monitor = ActivityMonitor()

    def launch(self, join: Join, lock: Path | None, log: Path, stacks: Path, env: Mapping[str, str], nice: int) -> None:
        """Fork one rank and send it its `Join`.

        Args:
            join: its place.
            lock: lock file of its device; None: another rank still has the device.
            log: path of its output, without suffix.
            stacks: file for its stacks.
            env: its variables.
            nice: its niceness.

        Raises:
            OSError: the operating system refuses it.
        """
        packet = encode(join)
        if len(packet) > _PACKET_BYTES:
            raise OSError(errno.EMSGSIZE, f"the configuration of a rank has {len(packet)} bytes")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        collectives, responder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        collectives.setblocking(False)
        page = new_page()
        launch = Launch(
            "rank",
            RANK_TARGET,
            env=dict(env),
            log=str(log),
            nice=nice,
            lock=str(lock or ""),
            stacks=str(stacks),
            fds=(theirs.fileno(), page, responder.fileno()),
        )
        child = self._zygote.fork(launch)
        theirs.close()
        responder.close()
        local = LocalRank(join.rank, child, ours, collectives, ProgressPage(page), log, is_script(join.entry))
        local.progress.set(join.restore.step, Phase.BOOT)
        os.close(page)
        self.ranks[join.rank] = local
        self._loop.add_reader(ours, self._read, local)
        ours.send(packet)

    @property
    def is_prepared(self) -> bool:
        """True if every rank is alive and waits for its state."""
        waiting = {message.rank for message in self.messages if isinstance(message, Prepared)}
        return waiting == set(self.ranks) == set(self.running())

    def begin(
        self, restore: Restore, state: RankState, locks: Mapping[int, Path], earlier_first_s: Mapping[str, float]
    ) -> None:
        """Let prepared ranks restore their state and train.

        Args:
            restore: source of the state.
            state: buffers and saved state of the ranks.
            locks: rank → lock file of its device.
            earlier_first_s: as at the start, with the generation that has ended since.
        """
        self._state, self._earlier_first_s = state, dict(earlier_first_s)
        for local in self.ranks.values():
            with contextlib.suppress(OSError):  # the rank is dying: its exit follows
                local.sock.send(encode(Begin(restore, str(locks[local.rank]))))

    def record_exit(self, child: int, code: int) -> LocalRank | None:
        """Record the exit of a child and return its rank, after its last messages are read. None: it is not a rank."""
        for local in self.ranks.values():
            if local.child == child:
                self._read(local)
                is_orphaned = self._check_lease()
                # The program may have saved and returned, but the job is not complete.
                local.exit_code = -signal.SIGTERM if is_orphaned and code == 0 else code
                if not is_orphaned:
                    self._record_script_end(local)
                return local
        return None

    def send(self, message: AgentRequest, rank: int | None = None) -> None:
        """Send a message to every live rank, or to one of them."""
        for local in self.ranks.values():
            if local.exit_code is None and rank in (None, local.rank):
                try:
                    local.sock.send(encode(message))
                except OSError:
                    continue  # the rank is dying: its exit follows

    def terminate(self) -> None:
        """Send SIGTERM to the process of every live rank, once. Their descendants get no signal, as under torchrun.

        SIGCONT follows, because a process that is stopped does not receive SIGTERM.
        """
        if self.is_terminating:
            return
        self.is_terminating = True
        live = [local.child for local in self.ranks.values() if local.exit_code is None]
        with contextlib.suppress(ZygoteDied):  # then the ranks are dead
            self._zygote.signal(live, signal.SIGTERM)
            self._zygote.signal(live, signal.SIGCONT)

    def messages_for_replay(self) -> list[Message]:
        """Return all messages, but only the first and the newest step row."""
        first, newest = self.first_row, self.newest_row
        rows = [] if first is None or newest is None else [first] if first is newest else [first, newest]
        return [*self.messages, *rows]

    def running(self) -> tuple[int, ...]:
        """Return the live ranks."""
        return tuple(rank for rank, local in sorted(self.ranks.items()) if local.exit_code is None)

    def phases(self) -> dict[int, tuple[int, str]]:
        """Return rank → (step, phase), as last written to its progress page."""
        return {rank: local.progress.read() for rank, local in sorted(self.ranks.items())}

    def poll_activities(self) -> dict[int, RankActivity]:
        """Return rank → activity, of the live ranks. Call this every second."""
        activities = self._activity_monitor.poll([
            RunningRank(
                rank,
                self._zygote.pids.get(local.child),
                local.progress,
                tuple(Path(f"{local.log}.{suffix}") for suffix in ("out", "err")),
            )
            for rank, local in sorted(self.ranks.items())
            if local.exit_code is None
        ])  # fmt: skip
        return {
            rank: replace(activity, earlier_first_s=self._earlier_first_s.get(activity.phase, 0.0))
            for rank, activity in activities.items()
        }

    def log_paths(self) -> list[Path]:
        """Return the files of the ranks' output."""
        return [Path(f"{local.log}.{suffix}") for local in self.ranks.values() for suffix in ("out", "err")]

    def first_visits_s(self) -> dict[str, float]:
        """Return phase → its longest first visit by a rank of this group, in seconds."""
        longest: dict[str, float] = {}
        for local in self.ranks.values():
            for phase, first_s in local.progress.firsts().items():
                longest[phase] = max(first_s, longest.get(phase, 0.0))
        return longest

    def longest_first_visits_s(self) -> dict[str, float]:
        """Return phase → its longest first visit in this and earlier generations, in seconds."""
        return self._earlier_first_s | {
            phase: max(first_s, self._earlier_first_s.get(phase, 0.0))
            for phase, first_s in self.first_visits_s().items()
        }

    def close(self) -> None:
        """Read the last messages of every rank and close the sockets. Call this when the ranks are proven dead."""
        self._lease.restart()
        for reply in self._replies:
            reply.cancel()
        for local in self.ranks.values():
            self._read(local)
            self._loop.remove_reader(local.sock)
            local.sock.close()
            local.collectives_sock.close()

    def _check_lease(self) -> bool:
        """Return True if the ranks got SIGTERM because they have no supervisor. Report it once."""
        if self._lease.is_over and not self._is_orphaned:
            self._is_orphaned = True
            message = f"no supervisor responded for {self._lease.orphan_s:.0f} s: the ranks got SIGTERM"
            self._on_message(Note(self.generation, "lease_ended", {"message": message}, time.time()))
        return self._is_orphaned

    def _record_script_end(self, local: LocalRank) -> None:
        """Add the `Done` of a script that exited with code 0 without one, for example through `os._exit(0)`."""
        is_done = any(isinstance(message, Done) and message.rank == local.rank for message in self.messages)
        if local.is_script and local.exit_code == 0 and not is_done:
            step, _ = local.progress.read()
            self._handle(local, Done(local.rank, self.generation, max(0, step - 1), stopped=False))

    def _read(self, local: LocalRank) -> None:
        while local.sock.fileno() >= 0:
            try:
                data, fds, _, _ = socket.recv_fds(local.sock, _PACKET_BYTES, _MOST_FDS)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", list[int]()
            if not data:
                self._loop.remove_reader(local.sock)
                return
            try:
                self._handle(local, self._redact(decode(data)), fds)
            finally:
                _close_all(fds)

    def _handle(self, local: LocalRank, message: Message, fds: Sequence[int] = ()) -> None:
        match message:
            case BuffersRequest() | StateCatalogRequest() | StateRequest() | SourceReleaseRequest():
                self._start_reply(self._send_state(local, message, [os.dup(fd) for fd in fds]))
            case FaultDue():
                self._start_reply(self._send_fault_approval(local, message))
            case StepRow():
                self.first_row, self.newest_row = self.first_row or message, message
                self._on_message(message)
            case Report():
                self._on_message(message)
            case Failed() if self.is_terminating or self._check_lease():
                return  # the rank's output has the error
            case Done() if self._check_lease():
                return
            case Done() if self.is_terminating:
                self._retain(replace(message, stopped=True))
            case _:
                self._retain(message)

    def _retain(self, message: Message) -> None:
        self.messages.append(message)
        self._on_message(message)

    def _start_reply(self, work: Coroutine[Any, Any, None]) -> None:
        reply = self._loop.create_task(work)
        self._replies.add(reply)
        reply.add_done_callback(self._replies.discard)

    async def _send_state(self, local: LocalRank, request: StateMessage, fds: Sequence[int]) -> None:
        assert self._state is not None, "ranks ask for state after they begin"
        try:
            await state_replies.answer(self._state, request, fds, local.sock)
        finally:
            _close_all(fds)

    async def _send_fault_approval(self, local: LocalRank, due: FaultDue) -> None:
        granted = await self._authorize_fault(due)
        try:
            local.sock.send(encode(FaultGranted(due.index, granted)))
        except OSError:
            return  # the rank died while it waited


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def stacks_path(scratch: Path, generation: int, rank: int) -> Path:
    """Return the file to which a rank writes its stacks on request. Two generations may exist at a time."""
    return scratch / f"stacks-{generation % 2}-{rank}.txt"
