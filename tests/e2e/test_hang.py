"""Ranks that stand still: found, shown where they stand, ended and started anew."""

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from house.served import Served, assert_same_result, eventually

from regroup.api.schemas import Job

Spec = Callable[..., dict[str, Any]]
STOPPED = {"at": {"rank": 2, "step": 13, "phase": "backward"}, "do": "sigstop"}


def test_a_rank_that_stands_still_is_named_and_the_job_goes_on_from_memory(
    served: Served, spec: Spec, control: Job
) -> None:
    job = served.run(spec("hangs", faults=[STOPPED]))
    assert_same_result(served, job, control)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.rung, incident.steps_lost) == ("hang", 2, "respawn", 0)
    assert "rank 2 stands out: step 13, backward, process " in incident.cause
    assert incident.cause.endswith("does not answer: it is stopped by a signal")
    evidence = incident.evidence
    assert evidence["odd_ranks"] == [2] and sorted(evidence["ranks"]) == ["0", "1", "2", "3"]
    assert all("trainer.py" in evidence["ranks"][rank]["stack"] for rank in "013")
    durations = incident.durations
    assert durations["total"] is not None and durations["total"] < 20, durations
    with urllib.request.urlopen(f"{served.url}/metrics", timeout=10) as metrics:
        assert 'regroup_incidents_total{cause="hang"} 1.0' in metrics.read().decode()


def test_nothing_is_found_where_it_is_switched_off(served: Served, spec: Spec) -> None:
    """The scenario above fails without the detector: it is that which ends the standstill."""
    job = served.client.submit(spec("off", faults=[STOPPED], recovery={"hang": {"after": "off"}}))
    eventually(lambda: served.client.get(job.id).step == 12, 120)
    stands = served.client.stacks(job.id)
    eventually(lambda: "is stopped" in served.client.stacks(job.id)[2].text, 30)
    assert stands and not served.client.get(job.id).incidents
    served.client.cancel(job.id)
    assert served.client.wait(job.id, timeout_s=60).state == "CANCELLED"


HANGS = """
import os, sys, time
print("here", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    def lost_in_thought():
        time.sleep(10**6)
    lost_in_thought()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    import torch.distributed as dist
    dist.init_process_group("gloo")
"""


def test_a_script_that_sleeps_for_ever_ends_as_its_spec_says(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS)
    workload = {"kind": "script", "entrypoint": str(path)}
    recovery = {"hang": {"after": "5s", "first_step": "5s"}}
    job = served.run({"name": "sleeps", "workload": workload, "layout": {"dp": 2}, "recovery": recovery}, 90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.rung) == ("hang", 1, "respawn")
    assert "allowed in build; rank 1 stands out: step 1, build" in incident.cause
    assert "in lost_in_thought" in incident.evidence["ranks"]["1"]["stack"]
