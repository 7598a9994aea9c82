"""`regroup serve` with a cluster in memory, whose jobs live as their names say: `python -m … STATE_DIR PORT`.

The first part of a job's name is its kind (`short_jobs.py`). Everything but the cluster is real.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from regroup.api.serve import serve
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.server import control_plane
from regroup.service.settings import Settings
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor

_NODES = [Node(id=f"{n}" * 40, name=f"local-{n}", address="127.0.0.1", cpus=4, free_cpus=4) for n in range(4)]
_STEP = {"duration_s": 0.1, "loss": 2.5, "tokens": 64, "samples": 4, "samples_hash": 1}
_PLACE: dict[str, Any] = {
    "layout": {"dp_shard": 1}, "world_size": 1, "ranks": [], "restore": {"source": "none"}, "cause": "",
}  # fmt: skip


class ScriptedLives:
    """Starts the life of each new supervisor."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(_NODES, on_start=self._begin)
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, supervisor: FakeSupervisor) -> None:
        # The double keeps lists for tests to inspect: they would grow with every job.
        for history in (self.cluster.calls, self.cluster.forgotten, self.cluster.warmed):
            history.clear()
        task = asyncio.create_task(live(supervisor, str(supervisor.payload["spec"]["name"]).partition("-")[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def live(supervisor: FakeSupervisor, kind: str) -> None:
    """Report the life of a job."""
    await supervisor.emit("generation", number=1, start_step=0, **_PLACE)
    await supervisor.state("RUNNING", "first_step")
    for step in range(1, 4):
        await supervisor.emit("step", step=step, **_STEP)
    if kind == "recovers":
        lost = {"cause": "rank_exit", "reason": "rank_exit", "recovery_action": "respawn", "steps_lost": 0}
        await supervisor.state("RECOVERING", "rank_exit")
        await supervisor.emit("incident", id="i1", **lost, durations={"total": 0.7})
        await supervisor.emit("generation", generation=2, number=2, start_step=3, **_PLACE)
        await supervisor.state("RUNNING", "recovered")
    if kind in ("waits", "withdrawn"):
        await supervisor.wait_for_intent("cancel")
        await supervisor.state("DRAINING", "cancelled_by_user")
        await supervisor.state("CANCELLED", "cancelled_by_user")
    elif kind == "fails":
        await supervisor.state("FAILED", "user_error", "the script failed")
    else:
        await supervisor.state("SUCCEEDED", "completed")


def main(state_dir: Path, port: int) -> None:
    """Serve until SIGTERM."""
    lives: list[ScriptedLives] = []

    async def connect(_settings: Settings, _store: Store) -> Cluster:
        lives.append(ScriptedLives())
        return lives[0].cluster

    control_plane.connect_clusters = connect
    serve(Settings(state_dir=state_dir, port=port, lease_s=2, reap_interval_s=5))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
