"""Run a user's command next to the ranks (`regroup exec`): start it, wait for it, kill all processes that it leaves.

This process is a fork of the zygote, so the command gets the job's interpreter and environment. It is a child
subreaper in a session of its own. No process that the command starts can escape it, and a kill of the ranks does not
affect it. It ends when the agent closes its pipe or dies. It imports no torch.
"""

import os
import select
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from regroup.workers.os import kill_tree, procfs, umask

NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT = 127, 126, 124
"""Exit codes that a shell and timeout(1) use."""
_KILL_DEADLINE_S = 5.0


def run_command(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run `args["command"]` until it ends. A task of the zygote (`launch.py`).

    Args:
        args: `command`, `env` (added to the zygote's), `folder` (the zygote's if empty), `timeout_s` or None.
        fds: Standard input, output and error of the command, and a pipe whose close ends the command.

    Returns:
        `code` (negative for a signal), `why` (`exited`, `timeout`, `ended`) and `stuck`: pids that outlived SIGKILL.
    """
    *streams, agent = fds
    procfs.become_subreaper()
    procfs.outlive_parent()  # this process outlives the zygote until it has killed the command
    os.setsid()  # Ray kills the process group of the agent; this process must survive to kill the command
    try:
        command = _start(args, streams)
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


def _start(args: dict[str, Any], streams: list[int]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **args["env"]}
    path = [str(Path(sys.executable).parent), environment.get("PATH") or os.defpath]
    return subprocess.Popen(
        args["command"],
        env={**environment, "PATH": os.pathsep.join(path)},
        cwd=args["folder"] or None,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,  # `kill 0` in the command must not reach the agent
        preexec_fn=partial(procfs.die_with_parent, os.getpid()),
        umask=umask.user_umask(),
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
