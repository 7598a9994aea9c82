"""An agent's access to the template of its node, and its handle on a zygote that the template forked."""

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regroup.workers.os import node_facts

_REPLY_BYTES = 16 * 1024
_PING_TIMEOUT_S = 1.0
_DETACH = "import os, sys; os.setsid(); os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Program that leaves the process of its command to the init process, so that it is not a child of an agent."""


class ForkedZygote:
    """A zygote that the node's template forked. It is not a child of this process, and has a pid once it exists."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply: socket.socket | None = reply
        self._pid, self._pidfd = 0, -1

    def __del__(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)

    @property
    def pid(self) -> int:
        """Pid of the zygote; 0 before the template has forked it."""
        self._receive()
        return self._pid

    def kill(self) -> None:
        """Send SIGKILL if the process exists."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until the process has ended."""
        if self.pid:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            ended.poll()

    def _receive(self) -> None:
        if self._reply is None:
            return
        try:
            data, fds, _, _ = socket.recv_fds(self._reply, _REPLY_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        self._reply.close()
        self._reply = None
        reply: dict[str, Any] = json.loads(data) if data else {}
        self._pid, self._pidfd = reply.get("pid", 0), fds[0] if fds else -1


def request_zygote(address: str, agent: socket.socket, log: Path, cwd: Path) -> ForkedZygote | None:
    """Request a zygote that serves the other end of `agent`; return before it exists. None without a template."""
    reply = _connect(address)
    if reply is None:
        return None
    request = json.dumps({"op": "fork", "cwd": str(cwd)}).encode()
    try:
        with log.open("ab") as file:
            socket.send_fds(reply, [request], [agent.fileno(), file.fileno()])
    except OSError:  # the template ends now
        reply.close()
        return None
    reply.setblocking(False)
    return ForkedZygote(reply)


def owner_pid() -> int:
    """Return the process with which the template of this node ends: for an actor the raylet, its parent."""
    return os.getppid() if node_facts.session_log_dir() is not None else os.getpid()


def template_address(node: str, env: Mapping[str, str], interpreter: str) -> str:
    """Return a name in the abstract namespace: one for each node, interpreter and environment."""
    identity = json.dumps([os.getuid(), owner_pid(), node, interpreter, sorted(env.items())])
    return f"\0regroup-template-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def ensure_template(
    node: str, env: Mapping[str, str], interpreter: str, preload: Sequence[str], log: Path, cwd: Path
) -> str:
    """Start the node's template unless it runs, extend its life, and return its address. Do not wait for its imports.

    Raises:
        OSError: the template cannot be started.
    """
    address = template_address(node, env, interpreter)
    if (running := _connect(address)) is not None:
        with running:
            running.send(b'{"op": "ping"}')
        return address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)  # fails if another standby agent starts the template now
        listener.listen(16)
        command = [interpreter, "-m", "regroup.workers.zygote.template", "--node", node]
        command += ["--listen", str(listener.fileno()), "--owner", str(owner_pid()), *preload]
        with log.open("ab") as file:
            starter = subprocess.Popen(
                [sys.executable, "-c", _DETACH, *command],
                env=dict(env),
                pass_fds=[listener.fileno()],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        starter.wait()
    return address


def _connect(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_PING_TIMEOUT_S)
    try:
        connection.connect(address)
        _, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        user = -1
    if user != os.getuid():  # any user of the machine, a rank included, may have bound the name first
        connection.close()
        return None
    return connection
