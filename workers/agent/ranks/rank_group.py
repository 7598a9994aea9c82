"""The ranks of one generation on one node: their sockets, their progress pages, what they say."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regroup.workers.agent.ranks.activity import ActivityMonitor, Standing
from regroup.workers.agent.snapshots.buffer_pool import Lent
from regroup.workers.agent.snapshots.shard_transfer import TransferError
from regroup.workers.contract.messages import (
    AgentRequest,
    Booted,
    Buffers,
    BuffersRequest,
    Done,
    FaultDue,
    FaultGranted,
    Join,
    Message,
    Phase,
    Report,
    StepRow,
    decode,
    encode,
)
from regroup.workers.contract.progress_page import ProgressPage, new_page
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.contract.rank_env import is_script
from regroup.workers.zygote.client import ZygoteLink
from regroup.workers.zygote.launch import Launch

_PACKET_BYTES = 160 * 1024
RANK_TARGET = "regroup.workers.rank.main:main"


@dataclass
class LocalRank:
    """One rank of the generation on this node, from the agent's side."""

    rank: int
    child: int
    """The zygote's id of its process."""
    sock: socket.socket
    asking: socket.socket
    """Where it tells of its collectives."""
    progress: ProgressPage
    log: Path
    """Path stem of its output."""
    is_program: bool
    """It is done when it ends with code 0, whether it says so or not."""
    exit_code: int | None = None


class RankGroup:
    """Forks a generation's ranks and speaks with them until all are dead.

    `on_message(message)` gets what concerns others; buffers and faults are answered through `lend(want)` and
    `reservation(due)`.
    """

    def __init__(
        self,
        generation: int,
        zygote: ZygoteLink,
        on_message: Callable[[Message], None],
        lend: Callable[[BuffersRequest], Awaitable[Lent]],
        grant: Callable[[FaultDue], Any],
        learned: Mapping[str, float] | None = None,
    ) -> None:
        """`learned`: phase → the longest that it took for the first time in earlier generations here."""
        self.generation = generation
        self._known = dict(learned or {})
        self.ranks: dict[int, LocalRank] = {}
        self.said: list[Message] = []
        """All but step rows, for a supervisor that was not there when it was said."""
        self.first_row: StepRow | None = None
        self.newest_row: StepRow | None = None
        self._zygote = zygote
        self._on_message, self._lend, self._grant = on_message, lend, grant
        self._loop = asyncio.get_running_loop()
        self._answers: set[asyncio.Task[None]] = set()
        self._dwelling = ActivityMonitor()

    def launch(
        self, join: Join, device_index: int, log: Path, scratch: Path, env: Mapping[str, str], nice: int
    ) -> None:
        """Fork one rank and hand it its place. `scratch` takes the lock of its device, and its stacks."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asking.setblocking(False)
        page = new_page()
        launch = Launch(
            "rank",
            RANK_TARGET,
            env=dict(env),
            log=str(log),
            nice=nice,
            lock=str(scratch / f"device-{device_index}.lock"),
            stacks=str(stacks_path(scratch, join.rank)),
            fds=(theirs.fileno(), page, answering.fileno()),
        )
        child = self._zygote.fork(launch)
        theirs.close()
        answering.close()
        local = LocalRank(join.rank, child, ours, asking, ProgressPage(page), log, is_script(join.entry))
        local.progress.set(join.restore.step, Phase.BOOT)
        os.close(page)
        self.ranks[join.rank] = local
        self._loop.add_reader(ours, self._read, local)
        ours.send(encode(join))

    def exited(self, child: int, code: int) -> LocalRank | None:
        """Note the end of a child; returns the rank it was. What it said last is read first."""
        for local in self.ranks.values():
            if local.child == child:
                self._read(local)
                local.exit_code = code
                self._is_done(local)
                return local
        return None

    def tell(self, message: AgentRequest, rank: int | None = None) -> None:
        """Say something to every rank that still listens, or to one of them."""
        for local in self.ranks.values():
            if local.exit_code is None and rank in (None, local.rank):
                try:
                    local.sock.send(encode(message))
                except OSError:
                    continue  # it is dying: its exit is on its way

    def heard(self) -> list[Message]:
        """All that was said, but of the steps only the first and the newest."""
        first, newest = self.first_row, self.newest_row
        rows = [] if first is None or newest is None else [first] if first is newest else [first, newest]
        return [*self.said, *rows]

    def running(self) -> tuple[int, ...]:
        """Ranks alive now."""
        return tuple(rank for rank, local in sorted(self.ranks.items()) if local.exit_code is None)

    def phases(self) -> dict[str, tuple[int, str]]:
        """Rank → (step, phase) as last written."""
        return {str(rank): local.progress.read() for rank, local in sorted(self.ranks.items())}

    def dwells(self) -> dict[str, RankActivity]:
        """Rank → how long it has been where it is; of ranks alive now. Call it every second."""
        found = self._dwelling.look([
            Standing(
                rank,
                self._zygote.pids.get(local.child),
                local.progress,
                tuple(Path(f"{local.log}.{suffix}") for suffix in ("out", "err")),
            )
            for rank, local in sorted(self.ranks.items())
            if local.exit_code is None
        ])  # fmt: skip
        return {
            str(rank): replace(dwell, earlier_first_s=self._known.get(dwell.phase, 0.0))
            for rank, dwell in found.items()
        }

    def logs(self) -> list[Path]:
        """Where the output of the ranks goes."""
        return [Path(f"{local.log}.{suffix}") for local in self.ranks.values() for suffix in ("out", "err")]

    def firsts(self) -> dict[str, float]:
        """Phase → the longest that a rank here took the first time."""
        longest: dict[str, float] = {}
        for local in self.ranks.values():
            for phase, first_s in local.progress.firsts().items():
                longest[phase] = max(first_s, longest.get(phase, 0.0))
        return longest

    def learned(self) -> dict[str, float]:
        """The same of this generation and those before."""
        return self._known | {
            phase: max(first_s, self._known.get(phase, 0.0)) for phase, first_s in self.firsts().items()
        }

    def close(self) -> None:
        """Read what is left of every socket and let go of them. Call when the ranks are proven dead."""
        for answer in self._answers:
            answer.cancel()
        for local in self.ranks.values():
            self._read(local)
            self._loop.remove_reader(local.sock)
            local.sock.close()
            local.asking.close()

    def _is_done(self, local: LocalRank) -> None:
        """A program may leave by `os._exit(0)`, past everything that would have said so."""
        has_said = any(isinstance(message, Done) and message.rank == local.rank for message in self.said)
        if local.is_program and local.exit_code == 0 and not has_said:
            step, _ = local.progress.read()
            self._handle(local, Done(local.rank, self.generation, max(0, step - 1), stopped=False))

    def _read(self, local: LocalRank) -> None:
        while local.sock.fileno() >= 0:
            try:
                data = local.sock.recv(_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(local.sock)
                return
            self._handle(local, decode(data))

    def _handle(self, local: LocalRank, message: Message) -> None:
        match message:
            case Booted():
                pass
            case BuffersRequest():
                self._answer(self._hand_buffers(local, message))
            case FaultDue():
                self._answer(self._answer_fault(local, message))
            case StepRow():
                self.first_row, self.newest_row = self.first_row or message, message
                self._on_message(message)
            case Report():
                self._on_message(message)
            case _:
                self.said.append(message)
                self._on_message(message)

    def _answer(self, work: Coroutine[Any, Any, None]) -> None:
        answer = self._loop.create_task(work)
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    async def _hand_buffers(self, local: LocalRank, want: BuffersRequest) -> None:
        # Of a rank whose state cannot be had, the generation ends; or it died while it waited.
        with contextlib.suppress(TransferError, OSError):
            fds, source, others = await self._lend(want)
            socket.send_fds(local.sock, [encode(Buffers(len(fds), source))], [*fds, *others])

    async def _answer_fault(self, local: LocalRank, due: FaultDue) -> None:
        granted = await self._grant(due)
        try:
            local.sock.send(encode(FaultGranted(due.index, granted)))
        except OSError:
            return  # the rank died while it waited


def stacks_path(scratch: Path, rank: int) -> Path:
    """Where a rank writes its stacks when it is asked."""
    return scratch / f"stacks-{rank}.txt"
