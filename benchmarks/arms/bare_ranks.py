"""Four ranks of a module of `benchmarks.peers`, with the environment variables that torchrun sets."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.peers.workload import RANKS

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def bare_ranks(module: str, arm: str, settings: Mapping[str, Any], folder: Path, **environment: str) -> Iterator[None]:
    """Start the ranks of an arm. On exit, wait up to 60 s for each rank, then end those that still run."""
    path = folder / f"{arm}.json"
    path.write_text(json.dumps(settings))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), **environment}
    command = [sys.executable, "-m", f"benchmarks.peers.{module}", str(path)]
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(RANKS)]
    try:
        yield
        for rank in ranks:
            rank.wait(60)
    finally:
        processes.end(rank.pid for rank in ranks if rank.poll() is None)
        for rank in ranks:
            rank.wait()
