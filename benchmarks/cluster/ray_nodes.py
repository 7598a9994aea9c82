"""A plain local Ray cluster of a given shape. A mark in the environment of its processes finds them at the end."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import processes

_MARK = "BENCHMARK_RAY_CLUSTER"


@dataclass(frozen=True)
class RayNodes:
    """A running cluster."""

    address: str
    environment: Mapping[str, str]
    """Environment variables that a driver needs to join."""
    join: Callable[[], None]
    """Function that starts one more node of the same kind."""


@contextmanager
def ray_nodes(nodes: int, slots: int, environment: Mapping[str, str]) -> Iterator[RayNodes]:
    """Start `nodes` Ray nodes with `slots` CPUs each on this machine, and end them on exit.

    The cluster has Ray's default settings except for its ports, its temporary folder, a small object store, token
    authentication and no dashboard. It needs the token because Ray listens on every interface. Each process of the
    cluster inherits `environment`.
    """
    folder = Path(tempfile.mkdtemp(prefix="bench-ray-"))
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    joining = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    env = {**os.environ, **joining, _MARK: folder.name}
    env.pop("RAY_ADDRESS", None)
    address = f"127.0.0.1:{_free_port()}"
    try:
        for index in range(nodes):
            _start_node(address, slots, folder, env, is_head=index == 0)
        yield RayNodes(address, joining, lambda: _start_node(address, slots, folder, env, is_head=False))
    finally:
        # Repeat until no process is left: a process forked during one round shows its mark only in the next round.
        while left := processes.marked(_MARK, folder.name):
            processes.end(left)
        shutil.rmtree(folder, ignore_errors=True)


def _start_node(address: str, slots: int, folder: Path, env: Mapping[str, str], *, is_head: bool) -> None:
    host, port = address.split(":")
    # The defaults of the other two ports are fixed, so two clusters on one machine would conflict.
    head = [
        "--head", f"--port={port}", f"--ray-client-server-port={_free_port()}", f"--dashboard-port={_free_port()}",
        "--include-dashboard=false", f"--temp-dir={folder}",
    ]  # fmt: skip
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", *(head if is_head else [f"--address={address}"]),
        f"--node-ip-address={host}", f"--num-cpus={slots}", f"--object-store-memory={128 * 1024**2}",
        "--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats",
    ]  # fmt: skip
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"ray start failed ({done.returncode}): {done.stdout[-2000:]}{done.stderr[-2000:]}")


def settle(cpu_limit: float = 0.3, patience_s: float = 30.0) -> bool:
    """Wait until the machine uses less than `cpu_limit` cores over half a second; return False on a timeout."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before, start = _busy_s(), time.monotonic()
        time.sleep(0.5)
        if (_busy_s() - before) / (time.monotonic() - start) < cpu_limit:
            return True
    return False


def _busy_s() -> float:
    user, nice, system = (int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
