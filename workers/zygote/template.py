"""The template of a node: a process with torch imported, from which the zygotes of jobs and standby agents are forked.

A job takes its standby agent, and the next one needs a zygote. The import of torch would cost that zygote about two
seconds of processor time while the job starts. A fork costs some milliseconds, and the zygotes share their memory.

The template listens on a Unix socket. Each connection is one request and its reply:

    → {"op": "fork", "cwd"} + [socket of the zygote, log]     ← {"pid"} + [pidfd]  or  {}
    → {"op": "ping"}                                          ← {}

It never runs code of a job, has one thread and opens no device. If its modules break this, it logs the reason and forks
nothing. It ends with the process that `--owner` names (the raylet of its node), or after a time without requests.
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
import struct
import sys
import time
import traceback
from typing import NoReturn

from regroup.workers.os import procfs
from regroup.workers.zygote import inherited_random
from regroup.workers.zygote.zygote import Zygote, unforkable

IDLE_TIMEOUT_S = 900.0
"""Time without a request after which the template ends. Standby agents send a request every two minutes."""
_REQUEST_BYTES = 16 * 1024
_REQUEST_TIMEOUT_S = 5.0


def main() -> None:
    """Run a template: `python -m regroup.workers.zygote.template --node NAME --listen FD --owner PID MODULE…`."""
    parser = argparse.ArgumentParser(prog="template")
    parser.add_argument("--node", required=True, help="name of the node, by which the process is found")
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--owner", type=int, required=True)
    parser.add_argument("preload", nargs="*")
    args = parser.parse_args()
    try:
        owner = os.pidfd_open(args.owner)
    except ProcessLookupError:
        sys.exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the zygotes: their agents watch them
    serve(socket.socket(fileno=args.listen), owner, args.preload)


def serve(listener: socket.socket, owner: int, preload: list[str]) -> None:
    """Import the modules, then answer requests until the owner ends, or for a time without requests."""
    why = _import(preload)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(owner, selectors.EVENT_READ)
        used_s = time.monotonic()
        while time.monotonic() < used_s + IDLE_TIMEOUT_S:
            ready = [key.fileobj for key, _ in selector.select(timeout=IDLE_TIMEOUT_S)]
            if owner in ready:
                return
            if listener in ready:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError, ValueError, KeyError):
                    connection.settimeout(_REQUEST_TIMEOUT_S)
                    _answer(connection, why)
                    used_s = time.monotonic()


def _import(preload: list[str]) -> str:
    """Import modules; return the reason why this process cannot be forked, or an empty string."""
    gc.disable()  # as in a zygote: importing only allocates
    with inherited_random.watched_imports() as after_import:
        for module in preload:
            try:
                importlib.import_module(module)
            except BaseException as error:  # a module may raise anything
                traceback.print_exc()
                return f"preload of {module!r} failed: {type(error).__name__}: {error}"
            after_import()
            if why := unforkable(module):
                return why
    gc.enable()
    gc.freeze()
    return ""


def _answer(connection: socket.socket, why: str) -> None:
    data, fds, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 2)
    try:
        _, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        request = json.loads(data)
        if uid != os.getuid():
            return
        if request["op"] == "ping":
            connection.send(b"{}")
        elif why:
            print(f"the template forks no zygote: {why}", file=sys.stderr, flush=True)
            connection.send(b"{}")
        else:
            _fork(connection, request["cwd"], *fds)
    finally:
        for fd in fds:
            os.close(fd)


def _fork(connection: socket.socket, cwd: str, agent: int, log: int) -> None:
    replied, reply = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reply)
        os.read(replied, 1)  # returns when the parent has closed the other end: the agent has the pid first
        _run_zygote(cwd, agent, log)
    os.close(replied)
    pidfd = os.pidfd_open(pid)
    try:
        socket.send_fds(connection, [json.dumps({"pid": pid}).encode()], [pidfd])
    finally:
        os.close(pidfd)
        os.close(reply)


def _run_zygote(cwd: str, agent: int, log: int) -> NoReturn:
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        agent = os.dup2(agent, 3) if agent != 3 else 3
        os.closerange(4, 2**31 - 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(cwd)
        procfs.become_subreaper()
        Zygote(socket.socket(fileno=agent)).serve()
        os._exit(0)
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
