"""Ray's head process dies and restarts, with its records in a Redis.

Jobs continue to train on their nodes; later failures are recovered. Without a Redis the cluster is lost:
test_ray_cluster_loss.py.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regroup.service.chaos.invariants import Expected
from regroup.service.local import processes, ray_cluster
from regroup.service.local.processes import Process
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.alone]
ONE_EXIT = Expected(incidents=(frozenset({"rank_exit"}),), steps_lost=0)


@pytest.fixture
def with_redis(redis_port: int, tmp_path: Path) -> Iterator[Server]:
    """A server whose Ray stores its records in a Redis."""
    server = Server(tmp_path / "state", environment={"RAY_REDIS_ADDRESS": f"127.0.0.1:{redis_port}"})
    server.start()
    yield server
    server.down()


def test_jobs_train_while_rays_head_is_down_and_are_adopted_again(
    with_redis: Server, spec: Spec, tmp_path: Path
) -> None:
    control = with_redis.run(spec("control"))
    (tmp_path / "gates").mkdir()
    gates = Gates(tmp_path / "gates", 10, 18)
    faults = [{"at": {"rank": 1, "step": 20, "phase": "backward"}, "do": "sigkill"}]
    job = with_redis.client.submit(spec("head-lost", faults=faults, **gates.parts))
    eventually(lambda: with_redis.client.get(job.id).step == 9, 120)
    with (
        _without_head(with_redis, tmp_path) as restart_head,
        check_all_invariants(with_redis, job, ONE_EXIT, control),
    ):
        gates.open(10)
        eventually(lambda: gates.ranks_at(18).keys() == {0, 1, 2, 3}, 60)  # the job trains without the head
        restart_head()
        eventually(lambda: with_redis.client.get(job.id).step == 17, 120)
        gates.open(18)
        with_redis.client.wait(job.id, timeout_s=240)
    generations = [event.generation for event in with_redis.client.events(job.id) if event.type == "generation"]
    assert generations == [1, 2], "its record was kept, so the next number follows"


@contextmanager
def _without_head(with_redis: Server, folder: Path) -> Iterator[Callable[[], None]]:
    """Kill Ray's head process. The block gets a function that starts it again; it runs until the block ends."""
    gcs = _gcs(with_redis)
    command = [word.decode() for word in processes.command_line(gcs)]
    environment = dict(
        part.split("=", 1) for part in Path(f"/proc/{gcs.pid}/environ").read_text().split("\0") if "=" in part
    )
    works_in = Path(f"/proc/{gcs.pid}/cwd").readlink()
    os.kill(gcs.pid, signal.SIGKILL)
    eventually(lambda: not gcs.is_alive, 10)
    again: list[subprocess.Popen[bytes]] = []

    def restart_head() -> None:
        with (folder / "gcs.log").open("wb") as log:
            again.append(subprocess.Popen(command, env=environment, cwd=works_in, stdout=log, stderr=log))

    try:
        yield restart_head
    finally:
        for process in again:
            process.kill()
            process.wait()


def _gcs(served: Server) -> Process:
    cluster = ray_cluster.load(served.state)
    assert cluster is not None
    (found,) = [process for process in cluster.daemons if process.name == "gcs_server"]
    return found
