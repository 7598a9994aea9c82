"""The zygote: one process per job and node with torch and the job's modules imported, from which ranks are forked.

Started by exec with the job's own interpreter and environment; never touches CUDA; one thread. It obeys its agent
over a socket, reports exits within milliseconds, proves deaths, and enforces the lease: a stuck or dead agent cannot
fence, so this loop does. Requests and reports are JSON packets:

    → {"op": "prepare", "token", "preload": [modules], "rehearsal": {"target", "args"}}
    ← {"op": "ready", "token", "pid", "import_s", "launcher", "why"}
      or {"op": "refused", "token", "module", "error", "traceback"}, and it ends
    → {"op": "move", "log", "cwd", "code"}
    → {"op": "fork", "id", "kind": "rank"|"store"|"task", "target", "args", "env", "log", "nice", "lock"} + fds
    → {"op": "kill", "token", "spare": [ids]}     ← {"op": "gone", "token", "stuck": [pids]}
    → {"op": "lease", "until_s"}                  (CLOCK_BOOTTIME)
    ← {"op": "forked", "id", "pid"}               ← {"op": "exited", "id", "code", "time_s"}
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

from regroup.workers.os import kill_tree, procfs
from regroup.workers.zygote.launch import Launch, start_child

_LAST_THREADS_S = 0.2
_REAPED_AFTER_S, _REAPED_AT_THE_END_AFTER_S = 0.5, 0.05
"""So long the dead are left alone: when all are dead to us, the last of their threads still work in the kernel."""
KILL_DEADLINE_S = 5.0
"""A process that outlives SIGKILL by this long is unkillable: its device is quarantined."""
_PACKET_BYTES = 160 * 1024


def main() -> None:
    """Entry of `python -m regroup.workers.zygote.zygote`."""
    parser = argparse.ArgumentParser(prog="zygote")
    parser.add_argument("--fd", type=int, required=True)
    args = parser.parse_args()
    agent = socket.socket(fileno=args.fd)
    procfs.become_subreaper()
    Zygote(agent).serve()


def _rehearse(rehearsal: dict[str, Any]) -> tuple[str, str]:
    """Let the job's code go through a step before the forks; returns launcher and what went wrong, if anything."""
    module, _, name = rehearsal["target"].partition(":")
    try:
        getattr(importlib.import_module(module), name)(rehearsal["args"])
    except Exception as error:  # nothing depends on it: ranks are only slower to begin
        traceback.print_exc()
        return "fork", f"the rehearsal failed ({type(error).__name__}: {error}): the first step of each rank is slower"
    why = _unforkable(module)
    return ("exec" if why else "fork"), why


def _move(log: str, cwd: str, code: str) -> None:
    """Write to this log, work in this folder and find this code first from now on, and so do the children."""
    os.chdir(cwd)
    if code:
        sys.path.insert(0, code)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _ignore(number: int, frame: object) -> None:
    """SIGCHLD only has to wake the loop: its byte in the wake-up pipe does that."""


def _unforkable(module: str) -> str:
    """Why a process that imported `module` cannot be forked; empty if it can."""
    if devices := procfs.open_devices():
        return f"preload {module!r} initialised CUDA ({devices[0]} is open): ranks are started by exec, slower"
    if (threads := procfs.thread_count()) > 1:
        return f"preload {module!r} started {threads - 1} thread(s): ranks are started by exec, slower"
    return ""


class Zygote:
    """The loop: forks on request, reaps, kills with proof, and ends its ranks when the lease passes."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._launcher, self._why = "fork", ""
        self._ids: dict[int, int] = {}
        """pid → id of every child that was asked for."""
        self._tasks: set[int] = set()
        """pids that outlive a generation: savers and other tasks."""
        self._lease_until_s = float("inf")
        self._reap_at_s = float("inf")

    def serve(self) -> None:
        """Run until the agent closes its end; then end everything below and return."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ, "agent")
            selector.register(wake_read, selectors.EVENT_READ, "child")
            while True:
                for key, _ in selector.select(timeout=0.5):
                    if key.data == "agent":
                        if not self._obey():
                            self._end_all()
                            if procfs.children(os.getpid()):
                                time.sleep(_REAPED_AT_THE_END_AFTER_S)
                                self._reap()
                            return
                    else:
                        with contextlib.suppress(BlockingIOError):
                            os.read(wake_read, 4096)
                        self._living()
                        self._reap_at_s = time.monotonic() + _REAPED_AFTER_S
                if time.monotonic() > self._reap_at_s:
                    self._reap()
                    self._reap_at_s = float("inf")
                if procfs.boottime_s() > self._lease_until_s:
                    self._end_all()
                    self._lease_until_s = float("inf")

    def _obey(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._agent, _PACKET_BYTES, 64)
        except OSError:
            return False
        if not data:
            return False
        request: dict[str, Any] = json.loads(data)
        match request["op"]:
            case "prepare":
                self._prepare(request["token"], request["preload"], request["rehearsal"])
            case "move":
                _move(request["log"], request["cwd"], request["code"])
            case "fork":
                self._fork(request, fds)
            case "kill":
                self._kill(request["token"], frozenset(request["spare"]))
            case "lease":
                self._lease_until_s = request["until_s"]
            case other:
                raise AssertionError(f"unknown request {other!r}")
        for fd in fds:
            os.close(fd)
        return True

    def _prepare(self, token: int, preload: list[str], rehearsal: dict[str, Any]) -> None:
        started = time.monotonic()
        gc.disable()  # importing only allocates: looking for garbage meanwhile costs a fifth of the time
        for module in preload:
            try:
                importlib.import_module(module)
            except BaseException as error:  # a preload may raise anything, SystemExit included
                self._refuse(token, module, error)
            if self._launcher == "fork" and (why := _unforkable(module)):
                self._launcher, self._why = "exec", why
        imported = time.monotonic()
        if self._launcher == "fork" and rehearsal:
            self._launcher, self._why = _rehearse(rehearsal)
        gc.enable()
        gc.freeze()  # keeps the imported heap shared; collecting it first takes 0.2 s and frees nothing of note
        self._say(
            {
                "op": "ready",
                "token": token,
                "pid": os.getpid(),
                "import_s": imported - started,
                "rehearsal_s": time.monotonic() - imported,
                "launcher": self._launcher,
                "why": self._why,
            }
        )

    def _refuse(self, token: int, module: str, error: BaseException) -> NoReturn:
        told = {"module": module, "error": f"{type(error).__name__}: {error}"}
        self._say({"op": "refused", "token": token, **told, "traceback": traceback.format_exc()[-8000:]})
        sys.exit(1)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        launch = Launch(**{key: value for key, value in request.items() if key not in ("op", "id")}, fds=tuple(fds))
        pid = start_child(launch, self._launcher)
        self._ids[pid] = request["id"]
        if launch.kind == "task":
            self._tasks.add(pid)
        self._say({"op": "forked", "id": request["id"], "pid": pid})

    def _kill(self, token: int, spare_ids: frozenset[int]) -> None:
        spare = frozenset(pid for pid in self._tasks if self._ids.get(pid) in spare_ids)
        self._hear_the_dead()  # what died by itself did so before what is killed now
        stuck = self._end(spare)
        self._say({"op": "gone", "token": token, "stuck": stuck})

    def _end_all(self) -> None:
        self._end(frozenset())

    def _end(self, spare: frozenset[int]) -> list[int]:
        return kill_tree.kill_subtree(os.getpid(), spare, KILL_DEADLINE_S, self._living)

    def _hear_the_dead(self) -> None:
        """Also who is dead but for the last of its threads: it can be waited for some moments later."""
        deadline = time.monotonic() + _LAST_THREADS_S
        self._living()
        while any(procfs.is_zombie(pid) for pid in self._ids) and time.monotonic() < deadline:
            time.sleep(0.001)
            self._living()

    def _living(self) -> list[int]:
        """Children of whom a thread lives. Reports the others, and does not reap them: where one of their threads is
        not through with its end in the kernel, the call waits for it, and keeps the processor busy meanwhile
        (`shrink_dcache_parent`, seen with Linux 6.18). With zygotes, which go before ranks, waiting so on each
        processor, ends of ranks have taken 12 s."""
        while True:
            children = procfs.children(os.getpid())
            living = [pid for pid in children if not self._has_ended(pid)]
            if living or procfs.children(os.getpid()) == children:  # who dies leaves us its children
                return living

    def _has_ended(self, pid: int) -> bool:
        code = procfs.exit_code(pid)
        if code is None:
            return False
        self._tasks.discard(pid)
        if (child := self._ids.pop(pid, None)) is not None:
            self._say({"op": "exited", "id": child, "code": code, "time_s": time.time()})
        return True

    def _reap(self) -> None:
        for pid in procfs.children(os.getpid()):
            if self._has_ended(pid):
                os.waitpid(pid, 0)

    def _say(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the agent is gone: the next read ends the loop
            self._agent.send(json.dumps(report).encode())


if __name__ == "__main__":
    main()
