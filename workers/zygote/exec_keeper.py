"""The keeper of a command that somebody runs beside the ranks: starts it, waits for it, ends all that it leaves.

A fork of the zygote, so that the command finds the job's interpreter and environment, and a child subreaper in a
session of its own: nothing that the command starts can leave it, and no kill of ranks meets it. It ends when the
agent lets go of it, or is gone. No torch.
"""

import os
import select
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from regroup.workers.os import kill_tree, procfs

NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT = 127, 126, 124
"""Exit codes as a shell and timeout(1) give them."""
_KILL_DEADLINE_S = 5.0


def keep(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run `args["command"]` to its end. A task of the zygote (`launch.py`).

    Args:
        args: `command`, `env` (beside the zygote's), `folder` (the zygote's if empty), `timeout_s` or None.
        fds: the command's standard input, output and error, and a pipe that is closed when the command is to end.

    Returns:
        `code` (negative for a signal), `why` (`exited`, `timeout`, `ended`) and `stuck`: pids that outlived SIGKILL.
    """
    *streams, agent = fds
    procfs.become_subreaper()
    procfs.outlive_parent()  # it must outlive the zygote by as long as it takes to end the command
    os.setsid()  # Ray kills the agent's process group, and with it whoever would end the command
    try:
        command = _started(args, streams)
    except OSError as error:
        os.write(streams[2], _refusal(args, error).encode())
        return {"code": _code_of(error, args), "why": "exited", "stuck": []}
    finally:
        for fd in streams:
            os.close(fd)
    why = _wait(command.pid, agent, args["timeout_s"])
    stuck = kill_tree.kill_subtree(os.getpid(), frozenset(), _KILL_DEADLINE_S)
    code = TIMED_OUT if why == "timeout" else -9
    if command.pid not in stuck:
        ended = command.wait()
        code = ended if why == "exited" else code
    return {"code": code, "why": why, "stuck": stuck}


def _started(args: dict[str, Any], streams: list[int]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **args["env"]}
    path = [str(Path(sys.executable).parent), environment.get("PATH") or os.defpath]
    return subprocess.Popen(
        args["command"],
        env={**environment, "PATH": os.pathsep.join(path)},
        cwd=args["folder"] or None,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,  # `kill 0` in it must not reach the agent
        preexec_fn=partial(procfs.die_with_parent, os.getpid()),
    )


def _wait(pid: int, agent: int, timeout_s: float | None) -> str:
    exited = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(exited, select.POLLIN)
    poll.register(agent, select.POLLIN)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ready = poll.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000)
    os.close(exited)
    if not ready:
        return "timeout"
    return "exited" if any(fd == exited for fd, _ in ready) else "ended"


def _is_folder(error: OSError, args: dict[str, Any]) -> bool:
    return bool(args["folder"]) and error.filename == args["folder"]


def _code_of(error: OSError, args: dict[str, Any]) -> int:
    return NOT_FOUND if isinstance(error, FileNotFoundError) and not _is_folder(error, args) else NOT_EXECUTABLE


def _refusal(args: dict[str, Any], error: OSError) -> str:
    if _is_folder(error, args):
        return f"regroup: no folder {args['folder']} on this node: {error.strerror}\n"
    return f"regroup: cannot run {args['command'][0]!r} on this node: {error.strerror}\n"
