"""The process that holds Ray's records dies and comes back, with the records kept in a Redis: jobs train on meanwhile,
and are where they were; what fails afterwards is mended. Without a Redis the cluster is lost:
test_ray_cluster_loss.py."""

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
pytestmark = [pytest.mark.redis, pytest.mark.slow]
ONE_EXIT = Expected(incidents=(frozenset({"rank_exit"}),), steps_lost=0)


@pytest.fixture
def kept(redis_port: int, tmp_path: Path) -> Iterator[Server]:
    """A server whose Ray keeps its records in a Redis."""
    server = Server(tmp_path / "state", environment={"RAY_REDIS_ADDRESS": f"127.0.0.1:{redis_port}"})
    server.start()
    yield server
    server.down()


def test_jobs_train_on_while_rays_records_are_away_and_are_adopted_again(
    kept: Server, spec: Spec, tmp_path: Path
) -> None:
    control = kept.run(spec("control"))
    (tmp_path / "gates").mkdir()
    gates = Gates(tmp_path / "gates", 10, 18)
    faults = [{"at": {"rank": 1, "step": 20, "phase": "backward"}, "do": "sigkill"}]
    job = kept.client.submit(spec("head-lost", faults=faults, **gates.parts))
    eventually(lambda: kept.client.get(job.id).step == 9, 120)
    with _without_records(kept, tmp_path) as bring_back, check_all_invariants(kept, job, ONE_EXIT, control):
        gates.open(10)
        eventually(lambda: gates.ranks_at(18).keys() == {0, 1, 2, 3}, 60)  # it trains on without
        bring_back()
        eventually(lambda: kept.client.get(job.id).step == 17, 120)
        gates.open(18)
        kept.client.wait(job.id, timeout_s=240)
    generations = [event.generation for event in kept.client.events(job.id) if event.type == "generation"]
    assert generations == [1, 2], "its record was kept, and the next number is the next one"


@contextmanager
def _without_records(kept: Server, folder: Path) -> Iterator[Callable[[], None]]:
    """The process that holds Ray's records is dead; what the block is given starts it again, until its end."""
    gcs = _gcs(kept)
    command = [word.decode() for word in processes.command_line(gcs)]
    environment = dict(
        part.split("=", 1) for part in Path(f"/proc/{gcs.pid}/environ").read_text().split("\0") if "=" in part
    )
    works_in = Path(f"/proc/{gcs.pid}/cwd").readlink()
    os.kill(gcs.pid, signal.SIGKILL)
    eventually(lambda: not gcs.is_alive, 10)
    again: list[subprocess.Popen[bytes]] = []

    def bring_back() -> None:
        with (folder / "gcs.log").open("wb") as log:
            again.append(subprocess.Popen(command, env=environment, cwd=works_in, stdout=log, stderr=log))

    try:
        yield bring_back
    finally:
        for process in again:
            process.kill()
            process.wait()


def _gcs(served: Server) -> Process:
    cluster = ray_cluster.load(served.state)
    assert cluster is not None
    (found,) = [process for process in cluster.daemons if process.name == "gcs_server"]
    return found
