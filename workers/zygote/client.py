"""The agent's handle on its zygote: forks, exits, tasks and proof of death as awaitables on one event loop."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from regroup.workers.os import job_files, process_user
from regroup.workers.os.start_errors import start_error
from regroup.workers.zygote.launch import Launch
from regroup.workers.zygote.template_client import ForkedZygote, request_zygote

_PACKET_BYTES = 160 * 1024
_POLL_S = 0.01
_KILL_TIMEOUT_S = 8.0
_RESULT_BYTES = 1 << 30
"""Longest result of a task: the metadata of a large checkpoint is some hundred bytes per tensor and rank."""


class ZygoteRefused(Exception):
    """Import of a preloaded module failed; see `module`, `error` and `traceback`."""

    def __init__(self, module: str, error: str, traceback: str) -> None:
        super().__init__(f"preload of {module!r} failed: {error}")
        self.module, self.error, self.traceback = module, error, traceback


class ZygoteDied(Exception):
    """The zygote process ended unexpectedly."""


class TaskFailed(Exception):
    """A task raised an exception in its process; `kind` is the type of the exception."""

    def __init__(self, kind: str, error: str, traceback: str) -> None:
        super().__init__(error)
        self.kind, self.error, self.traceback = kind, error, traceback


class TaskDied(TaskFailed):
    """The process of a task ended without a result. Most likely it was killed."""


class ZygoteLink:
    """Connection to one zygote process. All methods run on the event loop that called `start`."""

    def __init__(self, process: subprocess.Popen[bytes] | ForkedZygote, sock: socket.socket) -> None:
        self.process = process
        self.pids: dict[int, int] = {}
        """Id → pid of the live children."""
        self._sock = sock
        self._on_exit: Callable[[int, int, float], None] | None = None
        self._on_death: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._next = 0
        self._prepared: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._gone: dict[int, asyncio.Future[list[int]]] = {}
        self._tasks: set[int] = set()
        self._ended: dict[int, asyncio.Future[int]] = {}
        self.dead = False
        self._user: int | None = None
        """User of the zygote and its children; None: that of this process."""

    @property
    def is_child(self) -> bool:
        """True if the processes of a dead zygote become children of this process."""
        return not isinstance(self.process, ForkedZygote)

    @classmethod
    def start(
        cls, interpreter: str, env: Mapping[str, str], log: Path, cwd: Path, user: int | None = None
    ) -> "ZygoteLink":
        """Exec a zygote with the job's interpreter and environment. `cwd` becomes its `sys.path[0]`.

        With `user`, the process becomes that user's before it executes anything that the job may choose.

        Raises:
            StartError: The operating system refuses it.
        """
        ours: socket.socket | None = None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [interpreter, "-m", "regroup.workers.zygote.zygote", "--fd", str(theirs.fileno())]
            with theirs, _opened(log, user) as file:
                process = subprocess.Popen(
                    command if user is None else process_user.without_new_privileges(command),
                    env=dict(env),
                    pass_fds=[theirs.fileno()],
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
        except (OSError, ValueError) as error:
            if ours is not None:
                ours.close()
            raise start_error("the process that forks the ranks", error, interpreter) from error
        return cls._open(process, ours)

    @classmethod
    def fork_from(cls, template: str, log: Path, cwd: Path) -> "ZygoteLink | None":
        """Have a node's template fork a zygote. Return None if there is no template at this address."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = request_zygote(template, theirs, log, cwd)
        if process is None:
            ours.close()
            return None
        return cls._open(process, ours)

    @classmethod
    def _open(cls, process: subprocess.Popen[bytes] | ForkedZygote, sock: socket.socket) -> "ZygoteLink":
        sock.setblocking(False)
        link = cls(process, sock)
        link._loop.add_reader(sock, link._read)
        return link

    def serve(
        self,
        on_exit: Callable[[int, int, float], None],
        on_death: Callable[[], None],
        log: Path,
        cwd: Path,
        code: Path | None,
        user: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Assign the zygote to a job.

        Args:
            on_exit: Called with id, exit code and time (Unix seconds) of each child that ends.
            on_death: Called when the zygote itself dies.
            log: File for the output of children that have no log of their own.
            cwd: Working folder of the children.
            code: Folder that comes first on their import path, or None.
            user: User that the zygote becomes before it runs code of the job; None: that of this process.
            env: Variables in addition to those of the zygote.
        """
        self._on_exit, self._on_death, self._user = on_exit, on_death, user
        request = {"cwd": str(cwd), "code": str(code) if code is not None else "", "user": user, "env": dict(env or {})}
        with _opened(log, user) as file:
            self._send({"op": "move", **request}, [file.fileno()])

    def prepare(self, preload: Sequence[str], warmup: Mapping[str, Any]) -> None:
        """Import modules in the zygote and warm up there. A repeated import costs nothing."""
        self._next += 1
        self._ready = self._prepared[self._next] = self._loop.create_future()
        self._send({"op": "prepare", "token": self._next, "preload": list(preload), "warmup": dict(warmup)})

    async def ready(self) -> dict[str, Any]:
        """Wait until the last `prepare` has finished, and return the zygote's report.

        Raises:
            ZygoteRefused: A preloaded module raised an exception.
            ZygoteDied: The process ended before it was ready.
        """
        assert self._ready is not None, "prepare was called"
        return await asyncio.shield(self._ready)

    async def exists(self, timeout_s: float) -> bool:
        """Wait until the process exists. Return False after `timeout_s`: the template may be stuck."""
        deadline = time.monotonic() + timeout_s
        while not self.process.pid and not self.dead:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return not self.dead

    def fork(self, launch: Launch) -> int:
        """Start a child and return its id. Its descriptors are duplicated into the child and stay open here.

        Raises:
            OSError: A file of the child cannot be created.
            ZygoteDied: The zygote is gone.
        """
        self._next += 1
        fields = {key: value for key, value in asdict(launch).items() if key != "fds"}
        with contextlib.ExitStack() as stack:
            logs = [stack.enter_context(_opened(Path(path), self._user)).fileno() for path in launch.log_files()]
            for path in filter(None, (launch.lock, launch.stacks)):
                job_files.assign_file(Path(path), self._user)
            self._send({"op": "fork", "id": self._next, **fields}, (*launch.fds, *logs))
        self._ended[self._next] = self._loop.create_future()
        if launch.kind == "task":
            self._tasks.add(self._next)
        return self._next

    async def wait(self, child: int) -> int:
        """Wait for a child and return its exit code."""
        return await asyncio.shield(self._ended[child])

    async def run_task(
        self,
        target: str,
        args: Mapping[str, Any],
        fds: Sequence[int] = (),
        nice: int = 0,
        on_progress: Callable[[float | None, str], None] | None = None,
    ) -> dict[str, Any]:
        """Run `target(args, fds) -> dict` in a fork and return its result.

        Raises:
            TaskFailed: The task raised an exception.
            TaskDied: Its process was killed.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child = self.fork(Launch("task", target, dict(args), nice=nice, fds=(theirs.fileno(), *fds)))
        theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_RESULT_BYTES)
        try:
            while True:
                line = await reader.readline()
                if not line:
                    code = await self.wait(child)
                    raise TaskDied("ProcessDied", f"{target} ended with code {code} and no result", "")
                reply = json.loads(line)
                if "result" in reply:
                    return reply["result"]
                if "error" in reply:
                    raise TaskFailed(reply["kind"], reply["error"], reply["traceback"])
                if on_progress is not None:
                    on_progress(reply["progress"], reply["message"])
        finally:
            writer.close()

    async def kill_ranks(self, timeout_s: float, spare: Sequence[int] = ()) -> list[int]:
        """Kill every child with its subtree, except running tasks and `spare`; return the pids that were not killed.

        Raises:
            ZygoteDied: The zygote is gone, so there is no proof of death.
            TimeoutError: The zygote did not answer within `timeout_s`.
        """
        self._next += 1
        token = self._next
        self._gone[token] = self._loop.create_future()
        self._send({"op": "kill", "token": token, "spare": sorted({*self._tasks, *spare})})
        try:
            return await asyncio.wait_for(self._gone[token], timeout_s)
        finally:
            del self._gone[token]

    async def kill(self, children: Sequence[int]) -> None:
        """SIGKILL the processes of these children, and wait until they have ended. Their descendants live on."""
        with contextlib.suppress(ZygoteDied, TimeoutError):  # with the zygote they are dead
            self.signal(children, signal.SIGKILL)
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                await asyncio.gather(*(self.wait(child) for child in children))

    def signal(self, children: Sequence[int], number: int) -> None:
        """Send a signal to the process of each of these children that has not ended.

        Raises:
            ZygoteDied: The zygote is gone.
        """
        self._send({"op": "signal", "ids": list(children), "number": int(number)})

    def lease(self, until_s: float, grace_s: float) -> None:
        """Set the CLOCK_BOOTTIME second at which the ranks get SIGTERM, and SIGKILL `grace_s` later, unless renewed."""
        self._send({"op": "lease", "until_s": until_s, "grace_s": grace_s})

    def close(self) -> None:
        """Close the socket. The zygote then kills all processes below it and exits; the call does not wait for that."""
        if self.dead:
            return
        self.dead = True
        self._loop.remove_reader(self._sock)
        self._sock.close()
        error = ZygoteDied("the zygote is gone")
        for future in (*self._prepared.values(), *self._gone.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks the exception as retrieved: no caller may be waiting
        for future in self._ended.values():
            if not future.done():
                future.set_result(-9)

    def _send(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        if self.dead:
            raise ZygoteDied("the zygote is gone")
        data = json.dumps(request).encode()
        if len(data) > _PACKET_BYTES:
            raise start_error("a process of the job", OSError(errno.EMSGSIZE, f"a request of {len(data)} bytes"))
        deadline = time.monotonic() + 5
        while True:
            try:
                socket.send_fds(self._sock, [data], list(fds))
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ZygoteDied("the zygote has not read its socket for 5 s") from None
                time.sleep(0.001)
            except OSError as error:
                raise ZygoteDied(f"the zygote is gone: {error}") from error

    def _read(self) -> None:
        while True:
            try:
                data = self._sock.recv(_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._die()
                return
            self._handle(json.loads(data))

    def _handle(self, report: dict[str, Any]) -> None:
        match report["op"]:
            case "ready":
                self._prepared.pop(report["token"]).set_result(report)
            case "refused":
                refused = ZygoteRefused(report["module"], report["error"], report["traceback"])
                self._prepared.pop(report["token"]).set_exception(refused)
            case "forked":
                if self._user is None or process_user.real_user(report["pid"]) == self._user:
                    self.pids[report["id"]] = report["pid"]  # else the job's code has replaced its zygote
            case "exited":
                child = report["id"]
                self.pids.pop(child, None)
                self._tasks.discard(child)
                self._ended[child].set_result(report["code"])
                if self._on_exit is not None:
                    self._on_exit(child, report["code"], report["time_s"])
            case "gone":
                if (future := self._gone.get(report["token"])) and not future.done():
                    future.set_result(report["stuck"])
            case other:
                raise AssertionError(f"unknown report {other!r}")

    def _die(self) -> None:
        if self.dead:
            return
        running = [child for child, future in self._ended.items() if not future.done()]
        self.close()
        for child in running:
            if self._on_exit is not None:
                self._on_exit(child, -9, time.time())
        if self._on_death is not None:
            self._on_death()


def _opened(log: Path, user: int | None) -> BinaryIO:
    """Open a log for a process of `user`, which may open it again through /proc/self/fd but not through its folder."""
    file = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")
    if user is not None:
        os.fchown(file.fileno(), user, user)
    return file
