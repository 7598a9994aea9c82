"""Leftovers of jobs in a cluster that continues to run after they end.

No process, Ray actor, reservation or scratch folder may name an ended job. The processes that outlive every job
(server, GCS, raylets) may hold no more descriptors, listening ports or memory files than before. Standby processes
of the platform name no job, and connections to them do not count.
"""

import contextlib
import json
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup.service.local.leftovers import find_leftovers
from tests.support.checks.descriptors import Descriptor, Snapshot
from tests.support.checks.leaks import held
from tests.support.servers.regroup_server import Server

_CLOSED_WITHIN_S = 60.0
_STANDBY = "regroup-node:"
_DATABASES = "PostgreSQL."
"""Prefixes in shared memory of databases that other tests on this machine use at the same time; no job has one."""
_LONG_LIVED = ("gcs_server", "raylet")
_KEPT_CONNECTIONS = 2
"""Connections that two processes may open at the first call that needs them, and keep."""


@dataclass(frozen=True)
class DaemonResources:
    """Descriptors of the long-lived processes at one moment, by kind, and the names in shared memory."""

    by_process: Mapping[int, Counter[str]]
    """Process → kind → number, without connections."""
    connections: Mapping[int, Counter[frozenset[int]]]
    """Process → processes at the other end (none: unknown or ended) → number of connections."""
    shared_memory: frozenset[str]

    def beyond(self, before: "DaemonResources") -> list[str]:
        """Return a line for each kind of which there is more than before. New processes are not compared."""
        return [
            *(
                f"{count} more of {kind} in {_name(pid)} ({pid})"
                for pid, now in self.by_process.items()
                if pid in before.by_process
                for kind, count in (now - before.by_process[pid]).items()
            ),
            *(f"shared memory /dev/shm/{name}" for name in sorted(self.shared_memory - before.shared_memory)),
        ]


class ConnectionGrowth:
    """Connections between long-lived processes since the first test of a cluster.

    Ray opens some late and keeps them, so one job says nothing. Connections that grow with the jobs are a leak.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[int, frozenset[int]], int] = {}
        self._jobs_at: dict[int, int] = {}

    def record(self, now: DaemonResources, jobs: int) -> None:
        """Record the state before a test of a cluster that has had this number of jobs."""
        for pid, others in now.connections.items():
            if pid not in self._jobs_at:
                self._jobs_at[pid] = jobs
                self._first |= {(pid, other): count for other, count in others.items()}

    def leaks(self, now: DaemonResources, jobs: int) -> list[str]:
        """Return a line for each pair of processes whose connections grow at least as fast as the number of jobs."""
        lines: list[str] = []
        for pid, others in now.connections.items():
            since = jobs - self._jobs_at.get(pid, jobs)
            for other, count in others.items():
                growth = count - self._first.get((pid, other), 0)
                if growth > _KEPT_CONNECTIONS and growth >= since:
                    names = " and ".join(f"{_name(end)} ({end})" for end in sorted(other)) or "no process"
                    lines.append(f"{growth} more connections of {_name(pid)} ({pid}) to {names} after {since} jobs")
        return lines


_growth = ConnectionGrowth()


@contextlib.contextmanager
def nothing_left_by_jobs(served: Server) -> Generator[None]:
    """Fail if the jobs that are submitted in the block leave anything, after some time to close it."""
    earlier, before = {job.id for job in served.client.jobs()}, inspect_daemons(served)
    _growth.record(before, len(earlier))
    yield
    jobs = [job.id for job in served.client.jobs() if job.id not in earlier]
    deadline = time.monotonic() + _CLOSED_WITHIN_S

    def inspect() -> list[str]:
        now = inspect_daemons(served)
        return [*find_traces(served, jobs), *now.beyond(before), *_growth.leaks(now, len(earlier) + len(jobs))]

    while (left := inspect()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"{_CLOSED_WITHIN_S:.0f} s after the end of {jobs} these remain:\n  " + "\n  ".join(left)


@contextlib.contextmanager
def nothing_named_by_jobs(served: Server) -> Generator[None]:
    """Fail if anything names a job that is submitted in the block, or is new in shared memory, after some time to end.

    Descriptors of the long-lived processes are not compared: the number of Ray's own connections changes with its work.
    """
    earlier, before = {job.id for job in served.client.jobs()}, inspect_daemons(served).shared_memory
    yield
    jobs = [job.id for job in served.client.jobs() if job.id not in earlier]
    deadline = time.monotonic() + _CLOSED_WITHIN_S

    def inspect() -> list[str]:
        return [*find_traces(served, jobs), *sorted(inspect_daemons(served).shared_memory - before)]

    while (left := inspect()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"{_CLOSED_WITHIN_S:.0f} s after the end of {jobs} these remain:\n  " + "\n  ".join(left)


def inspect_daemons(served: Server) -> DaemonResources:
    """Return what the server, the GCS and the raylets hold now."""
    snapshot = Snapshot()
    long_lived = _long_lived(served)
    pool = str(served.state / "regroup.db")  # the pool of connections to the database grows to its size, and stays
    own = {
        pid: [found for found in snapshot.of(pid) if found.others <= long_lived and not found.target.startswith(pool)]
        for pid in long_lived
    }
    return DaemonResources(
        {pid: count_kinds(found) for pid, found in own.items()},
        {pid: count_connections(found) for pid, found in own.items()},
        frozenset(name for name in held().shared_memory if not name.startswith(_DATABASES)),
    )


def count_kinds(descriptors: Sequence[Descriptor]) -> Counter[str]:
    """Count descriptors by kind, without connections."""
    return Counter("listening port" if found.port else found.kind for found in descriptors if not _connects(found))


def count_connections(descriptors: Sequence[Descriptor]) -> Counter[frozenset[int]]:
    """Count connections by the processes at the other end."""
    return Counter(found.others for found in descriptors if _connects(found))


def _connects(descriptor: Descriptor) -> bool:
    return descriptor.kind == "socket" and not descriptor.port


def find_traces(served: Server, jobs: Sequence[str]) -> list[str]:
    """Return a line for each thing that names one of these jobs now, and for surplus standbys."""
    alive = _of_ray(served, "actors", "DEAD")
    actors = [f"Ray actor {item['name']}" for item in alive]
    # A standby that became a job's agent keeps its name. A node has at most one idle standby.
    standbys = Counter(item["name"].split(":")[1] for item in alive if item["name"].startswith(_STANDBY))
    reservations = [f"reservation {item['name']}" for item in _of_ray(served, "placement_groups", "REMOVED")]
    found = [line for line in (*actors, *reservations) if any(job in line for job in jobs)]
    surplus = [f"{count} standbys on node {node}" for node, count in standbys.items() if count > 1]
    return [*found, *surplus, *find_leftovers(jobs)]


def _long_lived(served: Server) -> frozenset[int]:
    daemons = json.loads((served.state / "ray.json").read_text())["daemons"]
    return frozenset([served.pid, *(daemon["pid"] for daemon in daemons if daemon["name"] in _LONG_LIVED)])


def _of_ray(served: Server, what: str, over: str) -> list[dict[str, Any]]:
    """Return Ray's actors or placement groups, without those in the state `over`."""
    cluster = json.loads((served.state / "ray.json").read_text())
    query = {"limit": 10_000, "filter_keys": "state", "filter_predicates": "!=", "filter_values": over}
    request = urllib.request.Request(
        f"{cluster['dashboard_url']}/api/v0/{what}?{urllib.parse.urlencode(query)}",
        headers={"Authorization": f"Bearer {Path(cluster['token_path']).read_text()}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]["result"]["result"]


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "a process that has ended"
