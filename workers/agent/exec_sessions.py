"""Commands that people run beside the ranks of a job, from the agent's side: started, read piece by piece, ended.

What a command writes waits in the agent until it is asked for, up to a limit; beyond it the agent stops reading, and
the command waits as it would for a slow terminal.
"""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract import rank_env
from regroup.workers.contract.agent_records import CommandExit, CommandOutput, CommandRequest, CommandStarted
from regroup.workers.contract.codec import build
from regroup.workers.contract.messages import Join
from regroup.workers.zygote.client import TaskFailed, ZygoteDied, ZygoteLink

NICE = 10
"""Commands yield to ranks."""
BUFFER_BYTES = 256 * 1024
UNREAD_S = 30.0
"""Whoever asked has gone if it has not read for so long: the command is ended."""
MOST = 8
"""So many at once on one node."""
_TARGET = "regroup.workers.zygote.exec_keeper:keep"
_PIECE_BYTES = 64 * 1024
_LOOK_S = 2.0
_LAST_WORDS_S = 1.0
_CLOSE_S = 8.0


class ExecRefused(LookupError):
    """The command was not started, or there is no such command."""


class ExecSessions:
    """The commands of one node, by the key that whoever asked gave each."""

    def __init__(self) -> None:
        self._known: dict[str, _Execution] = {}

    async def start(
        self, zygote: ZygoteLink, request: CommandRequest, at: tuple[Join, Mapping[str, str]] | None
    ) -> CommandStarted:
        """Start a command in the place of a rank.

        Args:
            at: the rank's orders and the variables it was started with; None if no such rank was formed here.

        Raises:
            ExecRefused: no such rank here, or too many commands.
            ZygoteDied: there is no zygote to fork from.
        """
        if at is None:
            raise ExecRefused(f"this node has not formed rank {request.rank} so far")
        self._known = {key: known for key, known in self._known.items() if not known.is_left}
        if request.key not in self._known:
            if len(self._known) >= MOST:
                raise ExecRefused(f"{MOST} commands run on this node already; end one of them first")
            await zygote.ready()
            self._known[request.key] = await _Execution.begin(zygote, request, *at)
        return CommandStarted(at[0].generation)

    async def read(self, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        """What a command wrote since it was last read; how it ended comes with the last piece.
        With a limit of 0: nothing, but it counts as read.

        Raises:
            ExecRefused: no such command.
        """
        execution = self._known.get(key)
        if execution is None:
            raise ExecRefused(f"no command {key} runs here")
        found = await execution.read(limit_bytes, wait_s)
        if found.ended is not None:
            self._known.pop(key, None)
        return found

    def end(self, key: str) -> None:
        """End a command with all that it started; an unknown one is no error."""
        execution = self._known.pop(key, None)
        if execution is not None:
            execution.end()

    async def close(self) -> None:
        """End all of them, with proof."""
        ending = [execution.end() for execution in self._known.values()]
        self._known.clear()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_S)


class _Execution:
    """One command."""

    def __init__(self, outputs: Mapping[int, str], control: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._outputs = dict(outputs)
        """Our ends of its pipes that are open → stream."""
        self._control = control
        self._pieces: deque[tuple[str, bytes]] = deque()
        self._size = 0
        self._is_reading = False
        self._read_s = time.monotonic()
        self._news = asyncio.Event()
        self._complete = asyncio.Event()
        """All pipes are at their ends."""
        self._ended: CommandExit | None = None
        self._watching: asyncio.Task[None]
        self._resume()

    @classmethod
    async def begin(
        cls, zygote: ZygoteLink, request: CommandRequest, join: Join, env: Mapping[str, str]
    ) -> "_Execution":
        """Fork its keeper."""
        variables = {**env, **rank_env.variables(join)}
        if rank_env.is_script(join.entry):
            variables |= rank_env.visible_devices(join)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (out, theirs_out), (err, theirs_err), (agent, control) = pipes
        theirs = [_input(request.stdin), theirs_out, theirs_err, agent]
        for fd in (out, err):
            os.set_blocking(fd, False)
        args = {
            "command": list(request.command), "env": variables, "folder": rank_env.folder(join),
            "timeout_s": request.timeout_s,
        }  # fmt: skip
        execution = cls({out: "stdout", err: "stderr"}, control)
        keeping = execution._loop.create_task(zygote.run_task(_TARGET, args, theirs, NICE))
        execution._watching = execution._loop.create_task(execution._watch(keeping))
        await asyncio.sleep(0)  # the fork is sent in the task's first step
        for fd in theirs:
            os.close(fd)
        return execution

    @property
    def is_left(self) -> bool:
        """It has ended, and nobody comes to hear how."""
        return self._watching.done() and time.monotonic() - self._read_s > UNREAD_S

    async def read(self, limit_bytes: int, wait_s: float) -> CommandOutput:
        """See `ExecSessions.read`."""
        self._read_s = time.monotonic()
        if limit_bytes <= 0:
            return CommandOutput()
        if not self._pieces and self._ended is None:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
        pieces: list[tuple[str, bytes]] = []
        taken = 0
        while self._pieces and (not pieces or taken + len(self._pieces[0][1]) <= limit_bytes):
            pieces.append(self._pieces.popleft())
            taken += len(pieces[-1][1])
        self._size -= taken
        self._resume()
        return CommandOutput(tuple(pieces), None if self._pieces else self._ended)

    def end(self) -> "asyncio.Task[None]":
        """Let go of the keeper, which ends the command; returns what is done when that is proven."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        return self._watching

    async def _watch(self, keeping: "asyncio.Task[dict[str, Any]]") -> None:
        """Until the command has ended and its output is complete."""
        try:
            while not keeping.done():
                await asyncio.wait({keeping}, timeout=_LOOK_S)
                if time.monotonic() - self._read_s > UNREAD_S:
                    self.end()
            try:
                outcome = build(CommandExit, await keeping)
            except (TaskFailed, ZygoteDied) as error:
                outcome = CommandExit(-9, "lost", message=str(error))
            if outcome.why == "exited" and not outcome.stuck:
                await self._drained()
            else:  # whoever else has the pipes is no longer waited for
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._drained(), _LAST_WORDS_S)
            self._ended = outcome
        finally:
            self.end()
            for fd in list(self._outputs):
                self._close(fd)
            self._news.set()

    async def _drained(self) -> None:
        while self._outputs and time.monotonic() - self._read_s < UNREAD_S:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), _LOOK_S)

    def _resume(self) -> None:
        if not self._is_reading and self._size < BUFFER_BYTES:
            self._is_reading = True
            for fd in self._outputs:
                self._loop.add_reader(fd, self._take, fd)

    def _take(self, fd: int) -> None:
        try:
            data = os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close(fd)
            return
        self._pieces.append((self._outputs[fd], data))
        self._size += len(data)
        self._news.set()
        if self._size >= BUFFER_BYTES:
            self._is_reading = False
            for open_fd in self._outputs:
                self._loop.remove_reader(open_fd)

    def _close(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._outputs[fd]
        os.close(fd)
        if not self._outputs:
            self._complete.set()


def _input(data: bytes) -> int:
    """A descriptor that reads `data` and then its end."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
