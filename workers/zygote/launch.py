"""Start of a rank, store or task process: by fork from the zygote, or by exec.

Both run `begin` with the same `Launch`, so a process behaves the same either way.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from regroup.workers.os import procfs, stacks, umask
from regroup.workers.zygote import inherited_files, inherited_random

_LAUNCH_VARIABLE = "REGROUP_LAUNCH"
_report: socket.socket | None = None


@dataclass(frozen=True)
class Launch:
    """Start parameters of a child process."""

    kind: str
    """`rank`, `store` or `task`."""
    target: str
    """`module:function`. Ranks and stores: `f(fds)`; tasks: `f(args, fds) -> dict`."""
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    env: dict[str, str] = field(default_factory=dict[str, str])
    log: str = ""
    """Path stem of the log: `.out` and `.err` are appended. Empty: inherited. The agent opens both files, and their
    descriptors are the last two."""
    nice: int = 0
    lock: str = ""
    """Path of the device's lock file; empty: none."""
    stacks: str = ""
    """Path of the file for its stacks on request; empty: none."""
    fds: tuple[int, ...] = ()
    """Descriptors. For a task the first is the stream of its progress and result, one JSON text a line."""

    def log_files(self) -> tuple[str, ...]:
        """Return the paths of the log's files: standard output and error."""
        return (f"{self.log}.out", f"{self.log}.err") if self.log else ()


def start_child(launch: Launch, launcher: str) -> int:
    """Fork a child that runs `launch` and return its pid. Launcher `exec` starts a fresh interpreter."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        procfs.die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        launch = _renew_inherited(launch)
        if launcher == "exec":
            os.environ[_LAUNCH_VARIABLE] = json.dumps(asdict(launch))
            for fd in launch.fds:
                os.set_inheritable(fd, True)
            os.execv(sys.executable, [sys.executable, "-c", f"from {__name__} import main; main()"])
        _exit(begin(launch))
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
        _exit(1)


def begin(launch: Launch) -> int:
    """Set up the process, run its target and return the exit code."""
    procfs.prefer_for_oom(1000)
    os.environ.update(launch.env)
    if launch.nice:
        os.nice(launch.nice)
    if launch.log:
        *own, output, errors = launch.fds
        _redirect(output, errors)
        launch = replace(launch, fds=tuple(own))
    if launch.stacks:
        stacks.answer(Path(launch.stacks))
        stacks.report_crashes()
    if launch.lock:
        procfs.lock_device(Path(launch.lock))
    if launch.kind == "rank":
        umask.restore()  # after the platform's files are open
    module, _, name = launch.target.partition(":")
    function = getattr(importlib.import_module(module), name)
    if launch.kind == "task":
        return _run_task(function, launch)
    return int(function(list(launch.fds)) or 0)


def progress(fraction: float | None, message: str) -> None:
    """Report the progress of this task to the agent; do nothing outside a task."""
    if _report is not None:
        _report.sendall(json.dumps({"progress": fraction, "message": message}).encode() + b"\n")


def _run_task(function: Any, launch: Launch) -> int:
    global _report
    pid = os.getpid()
    _report = socket.socket(fileno=launch.fds[0])
    try:
        reply = {"result": function(launch.args, list(launch.fds[1:]))}
    except Exception as error:
        reply = {
            "error": f"{type(error).__name__}: {error}",
            "kind": type(error).__name__,
            "traceback": traceback.format_exc()[-8000:],
        }
    if os.getpid() == pid:  # a process that the function forked may return here, too
        _report.sendall(json.dumps(reply).encode() + b"\n")
    return 0


def _renew_inherited(launch: Launch) -> Launch:
    """Renew what the fork copied, except the launch's own descriptors. An open socket of a sibling hides its end."""
    duplicates = tuple(os.dup(fd) for fd in launch.fds)
    inherited_files.renew(duplicates, launch.fds)
    inherited_random.renew()
    return replace(launch, fds=duplicates)


def _redirect(output: int, errors: int) -> None:
    for fd, file in ((1, output), (2, errors)):
        os.dup2(file, fd)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _exit(code: int) -> NoReturn:
    """Exit without running the zygote's atexit handlers or flushing its buffers."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk must not prevent the exit
            stream.flush()
    os._exit(code)


def main() -> None:
    """Run the exec launcher. It is called by import, so that this module exists once in the process."""
    fields: dict[str, Any] = json.loads(os.environ.pop(_LAUNCH_VARIABLE))
    fds = tuple(fields.pop("fds"))
    _exit(begin(Launch(**fields, fds=fds)))
