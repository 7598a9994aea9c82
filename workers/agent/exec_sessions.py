"""Commands that people run next to the ranks of a job, from the agent's side.

The agent buffers the output of a command until a client reads it, up to a limit. Above the limit the agent stops
reading, and the command blocks as it would on a slow terminal.
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
from regroup.workers.environment.redaction import Redactor, StreamRedactor
from regroup.workers.zygote.client import TaskFailed, ZygoteDied, ZygoteLink

NICE = 10
"""Niceness of commands. Ranks have priority."""
BUFFER_BYTES = 256 * 1024
UNREAD_S = 30.0
"""Time without a read after which the client counts as gone and the command is killed."""
MAX_COMMANDS = 8
"""Largest number of commands that run on one node at once."""
_TARGET = "regroup.workers.zygote.exec_runner:run_command"
_PIECE_BYTES = 64 * 1024
_POLL_S = 2.0
_LAST_OUTPUT_S = 1.0
_CLOSE_S = 8.0


class ExecRefused(LookupError):
    """The command was not started, or does not exist."""


class ExecSessions:
    """The commands of one node, by the key that the client chose."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._commands: dict[str, _Command] = {}

    async def start(
        self, zygote: ZygoteLink, request: CommandRequest, at: tuple[Join, Mapping[str, str]] | None
    ) -> CommandStarted:
        """Start a command with the variables and folder of a rank.

        Args:
            zygote: zygote from which the command is forked.
            request: the command.
            at: the rank's `Join` and its variables at the start; None if this node did not form the rank.

        Raises:
            ExecRefused: the rank is not on this node, or too many commands run.
            ZygoteDied: the zygote has died.
        """
        if at is None:
            raise ExecRefused(f"this node has not formed rank {request.rank} yet")
        self._commands = {key: command for key, command in self._commands.items() if not command.is_abandoned}
        if request.key not in self._commands:
            if len(self._commands) >= MAX_COMMANDS:
                raise ExecRefused(
                    f"{MAX_COMMANDS} commands run on this node already (the maximum); end one of them first"
                )
            await zygote.ready()
            self._commands[request.key] = await _Command.start(zygote, request, *at, self._redactor)
        return CommandStarted(at[0].generation)

    async def read(self, key: str, limit_bytes: int, wait_s: float) -> CommandOutput:
        """Return the output of a command since the last read, and its exit with the last piece.

        With a limit of 0 nothing is returned, but the client counts as present.

        Raises:
            ExecRefused: the command does not exist.
        """
        command = self._commands.get(key)
        if command is None:
            raise ExecRefused(f"no command {key} runs on this node")
        output = await command.read(limit_bytes, wait_s)
        if output.ended is not None:
            self._commands.pop(key, None)
        return output

    def kill(self, key: str) -> None:
        """Kill a command with all processes that it started; do nothing if it does not exist."""
        command = self._commands.pop(key, None)
        if command is not None:
            command.kill()

    async def close(self) -> None:
        """Kill all commands, with proof of death."""
        ending = [command.kill() for command in self._commands.values()]
        self._commands.clear()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_S)


class _Command:
    """One command."""

    def __init__(self, outputs: Mapping[int, str], control: int, redactor: Redactor) -> None:
        self._redactor = redactor
        self._filters = {fd: StreamRedactor(redactor) for fd in outputs}
        self._loop = asyncio.get_running_loop()
        self._outputs = dict(outputs)
        """Open read end of a pipe → stream."""
        self._control = control
        self._pieces: deque[tuple[str, bytes]] = deque()
        self._size = 0
        self._is_reading = False
        self._read_s = time.monotonic()
        self._has_output = asyncio.Event()
        self._complete = asyncio.Event()
        """All pipes have reached their ends."""
        self._ended: CommandExit | None = None
        self._watcher: asyncio.Task[None]
        self._resume()

    @classmethod
    async def start(
        cls, zygote: ZygoteLink, request: CommandRequest, join: Join, env: Mapping[str, str], redactor: Redactor
    ) -> "_Command":
        """Fork the process that runs the command."""
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
        command = cls({out: "stdout", err: "stderr"}, control, redactor)
        runner = command._loop.create_task(zygote.run_task(_TARGET, args, theirs, NICE))
        command._watcher = command._loop.create_task(command._watch(runner))
        await asyncio.sleep(0)  # the fork is sent in the task's first step
        for fd in theirs:
            os.close(fd)
        return command

    @property
    def is_abandoned(self) -> bool:
        """True if the command has ended and no client reads its exit."""
        return self._watcher.done() and time.monotonic() - self._read_s > UNREAD_S

    async def read(self, limit_bytes: int, wait_s: float) -> CommandOutput:
        """See `ExecSessions.read`."""
        self._read_s = time.monotonic()
        if limit_bytes <= 0:
            return CommandOutput()
        if not self._pieces and self._ended is None:
            self._has_output.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_output.wait(), wait_s)
        pieces: list[tuple[str, bytes]] = []
        read_bytes = 0
        while self._pieces and (not pieces or read_bytes + len(self._pieces[0][1]) <= limit_bytes):
            pieces.append(self._pieces.popleft())
            read_bytes += len(pieces[-1][1])
        self._size -= read_bytes
        self._resume()
        return CommandOutput(tuple(pieces), None if self._pieces else self._ended)

    def kill(self) -> "asyncio.Task[None]":
        """Close the pipe to the runner, which then kills the command. Return the task that ends with proof of death."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        return self._watcher

    async def _watch(self, runner: "asyncio.Task[dict[str, Any]]") -> None:
        """Wait until the command has ended and its output is complete."""
        try:
            while not runner.done():
                await asyncio.wait({runner}, timeout=_POLL_S)
                if time.monotonic() - self._read_s > UNREAD_S:
                    self.kill()
            try:
                outcome = build(CommandExit, await runner)
            except (TaskFailed, ZygoteDied) as error:
                outcome = CommandExit(-9, "lost", message=self._redactor.hide(str(error)))
            if outcome.why == "exited" and not outcome.stuck:
                await self._wait_for_output()
            else:  # other processes may have the pipes open: do not wait for them
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wait_for_output(), _LAST_OUTPUT_S)
            self._ended = outcome
        finally:
            self.kill()
            for fd in list(self._outputs):
                self._close(fd)
            self._has_output.set()

    async def _wait_for_output(self) -> None:
        while self._outputs and time.monotonic() - self._read_s < UNREAD_S:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), _POLL_S)

    def _resume(self) -> None:
        if not self._is_reading and self._size < BUFFER_BYTES:
            self._is_reading = True
            for fd in self._outputs:
                self._loop.add_reader(fd, self._read_pipe, fd)

    def _read_pipe(self, fd: int) -> None:
        try:
            data = os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close(fd)
            return
        self._pieces.append((self._outputs[fd], self._filters[fd].feed(data)))
        self._size += len(data)
        self._has_output.set()
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
    """Return a descriptor from which `data` can be read."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
