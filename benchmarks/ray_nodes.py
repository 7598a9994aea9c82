"""A plain local Ray cluster of a given shape, started as daemons and ended by process id."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes

_MARK = "BENCHMARK_RAY_CLUSTER"


@contextmanager
def ray_nodes(nodes: int, slots: int, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """`nodes` Ray nodes with `slots` CPUs each on loopback; yields the address to join.

    Everything is Ray's default but ports, temp folder, a small object store and no dashboard; authentication is off
    because the cluster lives for a minute. `environment` reaches every process of the cluster.
    """
    folder = tempfile.mkdtemp(prefix="bench-ray-")
    mark = Path(folder).name
    env = {**os.environ, **(environment or {}), _MARK: mark, "RAY_AUTH_MODE": "disabled"}
    env.pop("RAY_ADDRESS", None)
    address = f"127.0.0.1:{_free_port()}"
    try:
        for index in range(nodes):
            _start_node(address, slots, folder, env, is_head=index == 0)
        yield address
    finally:
        processes.end(processes.marked(_MARK, mark))


def _start_node(address: str, slots: int, folder: str, env: Mapping[str, str], *, is_head: bool) -> None:
    host, port = address.split(":")
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", *(head if is_head else [f"--address={address}"]),
        f"--node-ip-address={host}", f"--num-cpus={slots}",
        f"--object-store-memory={128 * 1024**2}", "--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats",
    ]  # fmt: skip
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"ray start failed ({done.returncode}): {done.stdout[-2000:]}{done.stderr[-2000:]}")


def settle(cpu_limit: float = 0.3, patience_s: float = 30.0) -> None:
    """Wait until the whole machine uses less than `cpu_limit` cores over half a second."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before, start = _busy_s(), time.monotonic()
        time.sleep(0.5)
        if (_busy_s() - before) / (time.monotonic() - start) < cpu_limit:
            return


def _busy_s() -> float:
    user, nice, system = (int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
