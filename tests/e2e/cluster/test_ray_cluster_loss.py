"""Ray is lost with every record in it. The database is enough to continue."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.service.chaos.invariants import Expected
from regroup.service.local import ray_cluster
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]

LOST = Expected(
    incidents=(frozenset({"rank_exit"}), frozenset({"cluster_lost"})), recovery_actions=frozenset({"respawn", "disk"}),
    detect_s=120.0, total_s=240.0, steps_lost=4,
)  # fmt: skip
"""The supervisor, which would report the loss, is lost with the cluster. The controller reports it, after
the server has started again."""


@pytest.mark.slow
@pytest.mark.alone
def test_a_job_continues_in_a_new_cluster_with_its_numbers_and_steps(tmp_path: Path, spec: Spec) -> None:
    gate = tmp_path / "closed"
    gate.touch()
    (tmp_path / "gate.py").write_text(GATE)
    gated = spec("cluster-lost", env={"PYTHONPATH": str(tmp_path), "GATE": str(gate)}, preload=["gate"])
    gated["faults"] = [{"at": {"rank": 1, "step": 4, "phase": "forward"}, "do": "sigkill"}]
    served = Server(tmp_path / "state")
    served.start()
    try:
        control = served.run(spec("control"))
        job = served.client.submit(gated)
        eventually(lambda: [saved for saved in served.client.checkpoints(job.id) if saved.step == 8], 120)
        cluster = ray_cluster.load(served.state)
        assert cluster is not None
        with check_all_invariants(served, job, LOST, control):
            served.kill()
            for process in cluster.daemons:
                if process.is_alive:
                    os.kill(process.pid, signal.SIGKILL)
            served.start()  # the start ends processes that the lost cluster left running
            gate.unlink()
            served.client.wait(job.id, timeout_s=240)
        generations = [event.generation for event in served.client.events(job.id) if event.type == "generation"]
        assert generations == [1, 2, 3], "numbers only grow, whatever was lost"
        numbers = [event.number for event in served.client.events(job.id)]
        assert numbers == list(range(1, len(numbers) + 1))
    finally:
        served.down()


GATE = """
import os, time
from regroup.workers.rank.context import Context

commit = Context.commit

def gated(self, step, **facts):
    while step == 12 and os.path.exists(os.environ["GATE"]):
        self._progress.set(step, "optimizer")  # the rank waits here, it does not hang
        time.sleep(0.05)
    return commit(self, step, **facts)

Context.commit = gated
"""
