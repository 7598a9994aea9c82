"""`regroup serve` with a cluster in memory: `python -m … STATE_DIR PORT`.

Jobs, tokens and projects are in the database of the state folder, and the output of ranks is in `outputs/` below it:
a server that starts after a SIGKILL finds all of it. Its cluster is new, so it starts the jobs again.
"""

import asyncio
import sys
from pathlib import Path

from regroup.api.serve import serve
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.server import control_plane
from regroup.service.settings import Settings
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster, FakeSupervisor

NODES = [Node(id="1" * 40, name="local-0", address="127.0.0.1", cpus=2, free_cpus=2)]
_PLACE = {"node_id": "1" * 40, "node_name": "local-0", "address": "127.0.0.1"}


class OutputCluster(FakeCluster):
    """A cluster in memory whose jobs run until they are cancelled or suspended, with the output of ranks in files."""

    def __init__(self, outputs: Path) -> None:
        super().__init__(NODES, on_start=self._begin)
        self._outputs = outputs
        self._tasks: set[asyncio.Task[None]] = set()

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        path = output_path(self._outputs, job_id, generation, rank, stream)
        if not path.exists():
            raise NotFoundError(f"job {job_id} has no {stream} of rank {rank} in generation {generation}")
        data = path.read_bytes()
        return LogChunk.of(data[offset : offset + limit], offset, len(data), is_ended=False)

    def _begin(self, supervisor: FakeSupervisor) -> None:
        task = asyncio.create_task(live(supervisor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def live(supervisor: FakeSupervisor) -> None:
    """Report a job that runs until it is cancelled or suspended."""

    async def report(state: str, reason: str) -> None:
        # Each supervisor of the job has its own keys: an event with a known key is not recorded again.
        await supervisor.state(state, reason, key=f"{state}:{supervisor.boot_id}")

    ranks = [{**_PLACE, "rank": rank, "local_rank": rank, "device": rank} for rank in range(2)]
    place = {"layout": {"dp_shard": 2}, "world_size": 2, "ranks": ranks, "restore": {"source": "none"}, "cause": ""}
    await supervisor.emit("generation", key="formed", number=1, start_step=0, **place)
    await report("RUNNING", "first_step")
    if await supervisor.wait_for_first_intent("cancel", "change") == "cancel":
        await report("DRAINING", "cancelled_by_user")
        await report("CANCELLED", "cancelled_by_user")
    else:
        change = supervisor.intents["change"]
        assert change["is_requeue"], f"the script has no other change than a suspension: {change}"
        await report("RESIZING", change["reason"])
        await report("QUEUED", change["reason"])


def output_path(outputs: Path, job_id: str, generation: int, rank: int, stream: str) -> Path:
    """Return the file with the output of a rank."""
    return outputs / f"{job_id}-g{generation}-rank{rank}.{stream}"


def main(state_dir: Path, port: int) -> None:
    """Serve until a signal ends the process."""

    async def connect(_settings: Settings, _store: Store) -> Cluster:
        return OutputCluster(state_dir / "outputs")

    control_plane.connect_clusters = connect
    serve(Settings(state_dir=state_dir, port=port, lease_s=2, reap_interval_s=5))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
