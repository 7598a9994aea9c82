"""Resources of a server and of its local Ray: memory, descriptors, database, and times of frequent work."""

import contextlib
import re
import sqlite3
import time
import urllib.request
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from regroup.service.local import ray_cluster
from regroup.service.local.api_token import own_token

_REQUESTS = 3
_PASS = re.compile(r"^regroup_controller_pass_seconds (\S+)$", re.MULTILINE)


def measure(state_dir: Path, pid: int, url: str) -> dict[str, float]:
    """Measure the server `pid`, and the Ray cluster of its state directory if there is one."""
    found = {
        "server_bytes": memory_bytes([pid]),
        "server_descriptors": descriptors(pid),
        "database_bytes": _database_bytes(state_dir / "regroup.db"),
    }
    metrics, passes = [], []
    for _ in range(_REQUESTS):
        seconds, text = _get(f"{url}/metrics", own_token(state_dir))
        metrics.append(seconds)
        passes += [float(match[1]) for match in _PASS.finditer(text)]
    found["metrics_s"] = min(metrics)
    if passes:
        found["pass_s"] = min(passes)
    cluster = ray_cluster.load(state_dir)
    if cluster is not None:
        alive = [each for each in cluster.daemons if each.is_alive]
        for name in ("gcs_server", "raylet"):
            found[f"{name}_bytes"] = memory_bytes(each.pid for each in alive if each.name == name)
        found["gcs_server_descriptors"] = sum(descriptors(each.pid) for each in alive if each.name == "gcs_server")
        rest = (each.pid for each in alive if each.name not in ("gcs_server", "raylet"))
        found["ray_agents_bytes"] = memory_bytes(rest)
    return found


def memory_bytes(pids: Iterable[int]) -> float:
    """Return the memory of processes that no file backs."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            match = re.search(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            total += int(match[1]) * 1024 if match else 0
    return float(total)


def descriptors(pid: int) -> float:
    """Return the number of open descriptors of a process."""
    with contextlib.suppress(OSError):
        return float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
    return 0.0


def _database_bytes(path: Path) -> float:
    """Return the size of an SQLite database with what its log holds, and without the log's own size."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        (pages,), (size,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return float(pages * size)


def _get(url: str, token: str | None) -> tuple[float, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    began_s = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return time.perf_counter() - began_s, text
