"""Run `ray start` for several nodes with a single import of Ray: `python -m regroup.service.local.ray_start NODES`.

NODES is JSON: a list of {"argv", "environment", "output", "after_port"}. A fork of this process starts each node and
writes to `output`. If `after_port` is not 0, the fork first waits until that port of this machine is open. The exit
code is 0 when all nodes have started, else 1 as soon as one has failed.
"""

import json
import os
import random
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ray._private import services
from ray.scripts import scripts

REGISTRATION_S = 120.0
"""Longest time from the start of a node's processes until Ray's head lists the node."""
_WAIT_S = 60.0
_NODE_ID_BYTES = 28

# regroup does not use the Ray client protocol, but `ray start` has no flag that disables the protocol's server. Ray
# starts without the server if the package is missing. That saves one process, one open port and a second of start-up.
scripts.get_ray_client_dependency_error = lambda: "disabled"


def wait_patiently(get_node: Callable[..., Any], limit_s: float = REGISTRATION_S) -> Callable[..., Any]:
    """Return a function that calls `get_node` until it finds the node, at most for `limit_s`.

    `ray start` itself stops waiting after 30 s, which no flag changes. Several nodes that start at once on a busy
    machine need longer.
    """

    def get_registered_node(*arguments: Any, **options: Any) -> Any:
        deadline_s = time.monotonic() + limit_s
        while True:
            try:
                return get_node(*arguments, **options)
            except RuntimeError:  # Ray's error for a node that the head does not list yet
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)

    return get_registered_node


services.get_node = wait_patiently(services.get_node)


def main(nodes: list[dict[str, Any]]) -> int:
    """Start all nodes."""
    pids = {_fork(node) for node in nodes}
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status != 0:
            return 1
    return 0


def _fork(node: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(node["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(node["environment"])
        # Ray's generator of node ids was seeded before the fork: all forks would generate the same id.
        os.environ["RAY_OVERRIDE_NODE_ID_FOR_TESTING"] = secrets.token_hex(_NODE_ID_BYTES)
        random.seed()
        _wait_for(node["after_port"])
        scripts.cli.main(["start", *node["argv"]], prog_name="ray", standalone_mode=False)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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
