"""Ray itself is lost, with every record in it: the database knows enough to go on."""

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

LOST = Expected(incidents=(frozenset({"rank_exit"}),))
"""Who would have said that the cluster was lost was lost with it: the job is placed anew, and charged nothing."""


@pytest.mark.slow
def test_a_job_goes_on_in_a_new_cluster_where_its_numbers_and_steps_go_on(tmp_path: Path, spec: Spec) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    (tmp_path / "holding.py").write_text(HOLDING)
    held = spec("cluster-lost", env={"PYTHONPATH": str(tmp_path), "HOLD": str(hold)}, preload=["holding"])
    held["faults"] = [{"at": {"rank": 1, "step": 4, "phase": "forward"}, "do": "sigkill"}]
    served = Server(tmp_path / "state")
    served.start()
    try:
        control = served.run(spec("control"))
        job = served.client.submit(held)
        eventually(lambda: [saved for saved in served.client.checkpoints(job.id) if saved.step == 8], 120)
        cluster = ray_cluster.load(served.state)
        assert cluster is not None
        with check_all_invariants(served, job, LOST, control):
            served.kill()
            for process in cluster.daemons:
                if process.is_alive:
                    os.kill(process.pid, signal.SIGKILL)
            served.start()  # which ends what the lost cluster left running
            hold.unlink()
            served.client.wait(job.id, timeout_s=240)
        generations = [event.generation for event in served.client.events(job.id) if event.type == "generation"]
        assert generations == [1, 2, 3], "numbers only grow, whatever was forgotten"
        numbers = [event.number for event in served.client.events(job.id)]
        assert numbers == list(range(1, len(numbers) + 1))
    finally:
        served.down()


HOLDING = """
import os, time
from regroup.workers.rank.context import Context

commit = Context.commit

def held(self, step, **facts):
    while step == 12 and os.path.exists(os.environ["HOLD"]):
        self._progress.set(step, "optimizer")  # it is held, it does not hang
        time.sleep(0.05)
    return commit(self, step, **facts)

Context.commit = held
"""
