"""Ranks that hang: detected, shown with their position, killed and restarted."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
STOPPED = {"at": {"rank": 2, "step": 13, "phase": "backward"}, "do": "sigstop"}


def test_a_rank_that_hangs_is_named_and_the_job_continues_from_memory(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    job = served.run(spec("hangs", faults=[STOPPED]))
    assert_same_result(served, job, control)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.recovery_action, incident.steps_lost) == ("hang", 2, "respawn", 0)
    assert "rank 2 stands out: step 13, backward, process " in incident.cause
    assert incident.cause.endswith("does not answer: it is stopped by a signal")
    evidence = incident.evidence
    assert evidence["outlier_ranks"] == [2] and sorted(evidence["ranks"]) == ["0", "1", "2", "3"]
    assert all("trainer.py" in evidence["ranks"][rank]["stack"] for rank in "013")
    assert evidence["ranks"]["0"]["collective"].endswith("(waiting)")
    assert evidence["ranks"]["2"]["collective"] == "no answer"
    durations = incident.durations
    assert durations["total"] is not None and durations["total"] < 20, durations
    assert 'regroup_incidents_total{cause="hang"} 1.0' in served.get("/metrics")
    assert incident.evidence_bytes and incident.evidence_missing == {}
    target = tmp_path / "hang.zip"
    command = [sys.executable, "-m", "regroup.api.cli", "evidence", job.id, "-o", str(target), "--server", served.url]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    with zipfile.ZipFile(target) as bundle:
        names = set(bundle.namelist())
        assert {f"ranks/{rank}/stacks.txt" for rank in range(4)} <= names
        assert {f"ranks/{rank}/collectives.jsonl" for rank in (0, 1, 3)} <= names
        assert "ranks/2/collectives.jsonl" not in names, "the process was stopped"
        assert {"incident.json", "spec.json", "generation-1.json", "generation-2.json", "events.jsonl"} <= names
        assert "is stopped by a signal" in bundle.read("ranks/2/stacks.txt").decode()
        summary = bundle.read("summary.txt").decode()
    assert summary.rstrip() in shown and "missing" not in summary
    assert re.search(
        r"^rank 2 on \S+: backward of step 13 for [\d.]+ s; last collective: no answer", summary, re.MULTILINE
    )
    assert re.search(
        r"^rank 0 on .* number \d+ of group \S+ \(waiting\); 0\.\d\d GiB, \d+ descriptors$", summary, re.MULTILINE
    )


def test_a_disabled_detector_finds_nothing(served: Server, spec: Spec) -> None:
    """Check that the scenario above fails without the detector, so the detector ends the hang."""
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


def test_a_script_that_sleeps_forever_ends_as_its_spec_sets(served: Server, tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS)
    workload = {"kind": "script", "entrypoint": str(path)}
    recovery = {"hang": {"after": "5s", "first_step": "5s"}}
    job = served.run({"name": "sleeps", "workload": workload, "layout": {"dp": 2}, "recovery": recovery}, 90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.recovery_action) == ("hang", 1, "respawn")
    assert "allowed in build; rank 1 stands out: step 1, build" in incident.cause
    assert "in lost_in_thought" in incident.evidence["ranks"]["1"]["stack"]


SKIPS = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(4):
    if not (step == 2 and dist.get_rank() == 1):
        FIRST
    dist.all_reduce(torch.ones(1000))
"""
OTHER_OPERATION = "dist.broadcast(torch.ones(4), src=0)"
"""All ranks wait forever."""
OTHER_SIZE = "dist.all_reduce(torch.ones(4))"
"""Gloo aborts a rank that receives more than it expects."""

DESYNC = Expected("FAILED", "desync", (frozenset({"desync"}),), detect_s=12.0, has_samples=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", [OTHER_OPERATION, OTHER_SIZE])
def test_ranks_in_different_collectives_fail_the_job_and_are_named(first: str, served: Server, tmp_path: Path) -> None:
    path = tmp_path / "skips.py"
    path.write_text(SKIPS.replace("FIRST", first))
    workload = {"kind": "script", "entrypoint": str(path)}
    recovery = {"hang": {"after": "5s", "first_step": "5s"}}
    job = served.client.submit({"name": "skips", "workload": workload, "layout": {"dp": 4}, "recovery": recovery})
    with check_all_invariants(served, job, DESYNC):
        job = served.client.wait(job.id, timeout_s=90)
    assert job.generation == 1
    (incident,) = job.incidents
    assert incident.recovery_action == "fail"
    named = "rank 1 into all_reduce of 1000 Float" in incident.cause and "as collective 5 of group" in incident.cause
    if first == OTHER_OPERATION:
        assert named and incident.rank == 1 and "the others into broadcast of 4 Float" in incident.cause
    else:  # a rank that aborts takes its collectives with it, and may be the one that differs
        assert named or "rank 1 at skips.py, line 8, in <module>" in incident.cause, (incident.cause, incident.evidence)
    assert incident.evidence_bytes, "left before the job ended"
