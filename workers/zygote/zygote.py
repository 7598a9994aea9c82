"""The zygote: one process per job and node with torch and the job's modules imported, from which ranks are forked.

It starts by exec with the job's own interpreter and environment. It never initializes CUDA, and it has one thread. It
executes requests of its agent, reports exits within milliseconds and proves deaths. It also enforces the lease, because
a stuck or dead agent cannot fence its ranks. Requests and reports are JSON packets on a socket:

    → {"op": "prepare", "token", "preload": [modules], "warmup": {"target", "args"}}
    ← {"op": "ready", "token", "pid", "import_s", "launcher", "why"}
      or {"op": "refused", "token", "module", "error", "traceback"}, and the zygote exits
    → {"op": "move", "cwd", "code", "user", "env"} + [log]
    → {"op": "fork", "id", "kind": "rank"|"store"|"task", "target", "args", "env", "log", "nice", "lock"} + fds
    → {"op": "kill", "token", "spare": [ids]}     ← {"op": "gone", "token", "stuck": [pids]}
    → {"op": "signal", "ids", "number"}
    → {"op": "lease", "until_s", "grace_s"}       (CLOCK_BOOTTIME)
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
import tempfile
import time
import traceback
from typing import Any, NoReturn

from regroup.workers.os import cuda_driver, kill_tree, process_user, procfs
from regroup.workers.zygote import inherited_files, inherited_random
from regroup.workers.zygote.launch import Launch, start_child

_LAST_THREADS_S = 0.2
_REAPED_AFTER_S, _REAPED_AT_THE_END_AFTER_S = 0.5, 0.05
"""Delay before dead children are reaped: the last of their threads may still run in the kernel."""
KILL_DEADLINE_S = 5.0
"""Seconds after SIGKILL from which a process counts as unkillable; its device is then quarantined."""
_PACKET_BYTES = 160 * 1024


def main() -> None:
    """Run a zygote: `python -m regroup.workers.zygote.zygote --fd FD`."""
    parser = argparse.ArgumentParser(prog="zygote")
    parser.add_argument("--fd", type=int, required=True)
    args = parser.parse_args()
    agent = socket.socket(fileno=args.fd)
    procfs.become_subreaper()
    Zygote(agent).serve()


def _warm_up(warmup: dict[str, Any]) -> tuple[str, str]:
    """Run one small step of the job's code before the forks; return the launcher and the reason for a slower start."""
    module, _, name = warmup["target"].partition(":")
    try:
        getattr(importlib.import_module(module), name)(warmup["args"])
    except Exception as error:  # optional: without it the first step of each rank is slower
        traceback.print_exc()
        return "fork", f"the warm-up failed ({type(error).__name__}: {error}): the first step of each rank is slower"
    why = unforkable(module)
    return ("exec" if why else "fork"), why


def _move(log: int, cwd: str, code: str, user: int | None, env: dict[str, str]) -> None:
    """Switch this process and its future children to a job's log, working folder, code folder, user and variables.

    It has run only the platform's modules until now. Those of the job run as the job's user from their first line.
    """
    os.dup2(log, 1)
    os.dup2(log, 2)
    if user is not None:
        if os.geteuid() == 0:
            process_user.become(user)
        process_user.forbid_new_privileges()
    os.environ.update(env)
    tempfile.tempdir = None  # a module of the platform may have chosen the folder before TMPDIR was set
    os.chdir(cwd)
    if code:
        sys.path.insert(0, code)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))


def _ignore(number: int, frame: object) -> None:
    """Ignore SIGCHLD: its byte in the wake-up pipe wakes the loop."""


def unforkable(module: str) -> str:
    """Return the reason why a process that imported `module` cannot be forked; empty if it can."""
    if cuda_driver.is_initialized():
        return f"preload {module!r} initialized CUDA: ranks start by exec, which is slower"
    if (threads := procfs.thread_count()) > 1:
        return f"preload {module!r} started {threads - 1} thread(s): ranks start by exec, which is slower"
    return ""


class Zygote:
    """Loop that forks on request, reaps, kills with proof of death, and ends its ranks when the lease expires."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._launcher, self._why = "fork", ""
        self._ids: dict[int, int] = {}
        """Pid → id of every requested child."""
        self._ranks: set[int] = set()
        """Pids of the ranks."""
        self._lease_until_s = float("inf")
        self._grace_s = 0.0
        self._killed_at_s = float("inf")
        """CLOCK_BOOTTIME second at which ranks are killed that got SIGTERM because the lease has ended."""
        self._reap_at_s = float("inf")

    def serve(self) -> None:
        """Run until the agent closes its end; then kill all processes below and return."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        with selectors.EpollSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ, "agent")
            selector.register(wake_read, selectors.EVENT_READ, "child")
            inherited_files.close_in_children(self._agent.fileno(), wake_read, wake_write, selector.fileno())
            while True:
                for key, _ in selector.select(timeout=0.5):
                    if key.data == "agent":
                        if not self._execute_request():
                            self._end_all()
                            if procfs.children(os.getpid()):
                                time.sleep(_REAPED_AT_THE_END_AFTER_S)
                                self._reap()
                            return
                    else:
                        with contextlib.suppress(BlockingIOError):
                            os.read(wake_read, 4096)
                        self._live_children()
                        self._reap_at_s = time.monotonic() + _REAPED_AFTER_S
                if time.monotonic() > self._reap_at_s:
                    self._reap()
                    self._reap_at_s = float("inf")
                self._enforce_lease()

    def _enforce_lease(self) -> None:
        """Send SIGTERM to the ranks when the lease ends. Kill everything when they have ended, or their time has."""
        now_s = procfs.boottime_s()
        if now_s > self._lease_until_s:
            self._lease_until_s, self._killed_at_s = float("inf"), now_s + self._grace_s
            self._signal(frozenset(self._ids[pid] for pid in self._ranks), signal.SIGTERM)
        if self._killed_at_s < float("inf") and (now_s > self._killed_at_s or not self._ranks):
            self._end_all()
            self._killed_at_s = float("inf")

    def _execute_request(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._agent, _PACKET_BYTES, 64)
        except OSError:
            return False
        if not data:
            return False
        request: dict[str, Any] = json.loads(data)
        match request["op"]:
            case "prepare":
                self._prepare(request["token"], request["preload"], request["warmup"])
            case "move":
                _move(fds[0], request["cwd"], request["code"], request["user"], request["env"])
            case "fork":
                self._fork(request, fds)
            case "kill":
                self._kill(request["token"], frozenset(request["spare"]))
            case "signal":
                self._signal(frozenset(request["ids"]), request["number"])
            case "lease":
                self._lease_until_s, self._grace_s = request["until_s"], request["grace_s"]
            case other:
                raise AssertionError(f"unknown request {other!r}")
        for fd in fds:
            os.close(fd)
        return True

    def _prepare(self, token: int, preload: list[str], warmup: dict[str, Any]) -> None:
        started = time.monotonic()
        gc.disable()  # importing only allocates: garbage collection would cost a fifth of the time
        with inherited_random.watched_imports() as after_import:
            for module in preload:
                try:
                    importlib.import_module(module)
                except BaseException as error:  # a module may raise anything, including SystemExit
                    self._refuse(token, module, error)
                after_import()
                if self._launcher == "fork" and (why := unforkable(module)):
                    self._launcher, self._why = "exec", why
        inherited_files.flush_files()
        imported = time.monotonic()
        if self._launcher == "fork" and warmup:
            self._launcher, self._why = _warm_up(warmup)
        gc.enable()
        gc.freeze()  # keeps the imported heap shared; collecting it first takes 0.2 s and frees nothing of note
        self._send(
            {
                "op": "ready",
                "token": token,
                "pid": os.getpid(),
                "import_s": imported - started,
                "warmup_s": time.monotonic() - imported,
                "launcher": self._launcher,
                "why": self._why,
            }
        )

    def _refuse(self, token: int, module: str, error: BaseException) -> NoReturn:
        failure = {"module": module, "error": f"{type(error).__name__}: {error}"}
        self._send({"op": "refused", "token": token, **failure, "traceback": traceback.format_exc()[-8000:]})
        sys.exit(1)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        launch = Launch(**{key: value for key, value in request.items() if key not in ("op", "id")}, fds=tuple(fds))
        pid = start_child(launch, self._launcher)
        self._ids[pid] = request["id"]
        if launch.kind == "rank":
            self._ranks.add(pid)
        self._send({"op": "forked", "id": request["id"], "pid": pid})

    def _kill(self, token: int, spare_ids: frozenset[int]) -> None:
        spare = frozenset(pid for pid, child in self._ids.items() if child in spare_ids)
        self._report_exits()  # first: these children died before the ones that are killed now
        stuck = self._end(spare)
        self._lease_until_s = self._killed_at_s = float("inf")  # the agent sets the lease of the next ranks
        self._send({"op": "gone", "token": token, "stuck": stuck})

    def _signal(self, ids: frozenset[int], number: int) -> None:
        for pid in [pid for pid, child in self._ids.items() if child in ids]:  # none of them has been reaped
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end_all(self) -> None:
        self._end(frozenset())

    def _end(self, spare: frozenset[int]) -> list[int]:
        return kill_tree.kill_subtree(os.getpid(), spare, KILL_DEADLINE_S, self._live_children)

    def _report_exits(self) -> None:
        """Report dead children. Wait briefly for those whose last thread has not ended yet."""
        deadline = time.monotonic() + _LAST_THREADS_S
        self._live_children()
        while any(procfs.is_zombie(pid) for pid in self._ids) and time.monotonic() < deadline:
            time.sleep(0.001)
            self._live_children()

    def _live_children(self) -> list[int]:
        """Return the children that still have a live thread, and report the others without reaping them.

        Reaping blocks while a thread of the child is still ending in the kernel, and it keeps the processor busy
        (`shrink_dcache_parent`, seen with Linux 6.18). Zygotes have priority over ranks: with one of them waiting on
        each processor, ranks have taken 12 s to end.
        """
        while True:
            children = procfs.children(os.getpid())
            live = [pid for pid in children if not self._has_ended(pid)]
            if live or procfs.children(os.getpid()) == children:  # a process that dies leaves its children to this one
                return live

    def _has_ended(self, pid: int) -> bool:
        code = procfs.exit_code(pid)
        if code is None:
            return False
        self._ranks.discard(pid)
        if (child := self._ids.pop(pid, None)) is not None:
            self._send({"op": "exited", "id": child, "code": code, "time_s": time.time()})
        return True

    def _reap(self) -> None:
        for pid in procfs.children(os.getpid()):
            if self._has_ended(pid):
                os.waitpid(pid, 0)

    def _send(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the agent is gone, and the next read ends the loop
            self._agent.send(json.dumps(report).encode())


if __name__ == "__main__":
    main()
