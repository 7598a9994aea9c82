"""Run `ray start` for several nodes with a single import of Ray: `python -m regroup.service.local.ray_start NODES`.

NODES is JSON: a list of {"argv", "environment", "output", "after_port"}. A fork of this process starts each node and
writes to `output`. If `after_port` is not 0, the fork first waits until that port of this machine is open. The exit
code is 0 when all nodes have started, else 1 as soon as one has failed.

A raylet ends if its dashboard agent has not opened its ports within 15 s, which no flag changes. On a busy machine the
agents of several nodes need longer. So only as many nodes start at once as the machine has cores, and a node whose
raylet has ended starts again, as do nodes that find no head.
"""

import json
import os
import random
import secrets
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from ray._private import node, services
from ray.scripts import scripts

from regroup.service.local import processes

REGISTRATION_S = 120.0
"""Longest time from the start of a node's processes until Ray's head lists the node."""
_WAIT_S = 60.0
_ATTEMPTS = 6
"""Number of starts of one node."""
_AT_ONCE = max(2, os.cpu_count() or 1)
_START_AGAIN = 3
"""Exit code of a fork whose node may start again."""
_NODE_ID_BYTES = 28

# regroup does not use the Ray client protocol, but `ray start` has no flag that disables the protocol's server. Ray
# starts without the server if the package is missing. That saves one process, one open port and a second of start-up.
scripts.get_ray_client_dependency_error = lambda: "disabled"


class StartAgainError(Exception):
    """The node cannot start now, but may with new processes: its raylet has ended, or the head starts again."""


_raylets: list[Any] = []
"""The raylet that this process started."""


def wait_patiently(get_node: Callable[..., Any], limit_s: float = REGISTRATION_S) -> Callable[..., Any]:
    """Return a function that calls `get_node` until it finds the node, at most for `limit_s`.

    `ray start` itself stops waiting after 30 s, which no flag changes. Several nodes that start at once on a busy
    machine need longer. Raises StartAgainError as soon as the raylet of this process has ended.
    """

    def get_registered_node(*arguments: Any, **options: Any) -> Any:
        deadline_s = time.monotonic() + limit_s
        while True:
            try:
                return get_node(*arguments, **options)
            except RuntimeError:  # Ray's error for a node that the head does not list yet
                if any(raylet.poll() is not None for raylet in _raylets):
                    raise StartAgainError("the raylet has ended; see raylet.out in the logs of its session") from None
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)

    return get_registered_node


def start_again_without_head(get_head: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `get_head`, and raises StartAgainError if the head does not answer.

    A node that knew a head cannot connect to another one at the same address: clusters have ids.
    """

    def find(*arguments: Any, **options: Any) -> Any:
        try:
            return get_head(*arguments, **options)
        except Exception as error:
            raise StartAgainError(str(error)) from error

    return find


def remember_raylet(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `start_raylet` and remembers the process."""

    def start(*arguments: Any, **options: Any) -> Any:
        started = start_raylet(*arguments, **options)
        _raylets.append(started.process)
        return started

    return start


services.get_node = wait_patiently(services.get_node)
node.get_all_node_info_until_retrieved = start_again_without_head(node.get_all_node_info_until_retrieved)
services.start_raylet = remember_raylet(services.start_raylet)


def main(nodes: list[dict[str, Any]]) -> int:
    """Start all nodes, the first ones first."""
    waiting = deque((each, _ATTEMPTS) for each in nodes)
    running: dict[int, tuple[dict[str, Any], int]] = {}
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            started, attempts = waiting.popleft()
            running[_fork(started)] = started, attempts - 1
        pid, status = os.wait()
        ended, left = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == _START_AGAIN and left:
            waiting.append((ended, left))
        elif code != 0:
            return 1
    return 0


def _fork(starting: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(starting["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(starting["environment"])
        # Ray's generator of node ids was seeded before the fork: all forks would generate the same id.
        os.environ["RAY_OVERRIDE_NODE_ID_FOR_TESTING"] = secrets.token_hex(_NODE_ID_BYTES)
        random.seed()
        _wait_for(starting["after_port"])
        scripts.cli.main(["start", *starting["argv"]], prog_name="ray", standalone_mode=False)
        code = 0
    except StartAgainError:
        traceback.print_exc()
        _end_children()
        code = _START_AGAIN
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_children() -> None:
    """End what this fork has started, so that the next start finds the ports of a head free."""
    own = processes.find_process(os.getpid())
    assert own is not None, "this process exists"
    processes.kill(processes.with_descendants([own]) - {own})


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while port:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"port {port} did not open within {_WAIT_S:.0f} s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
