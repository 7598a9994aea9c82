"""Two machines that share only the storage: a job on both loses a rank and ends with the undisturbed result."""

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.machines.namespaces import TRAINING, Cluster, cluster

pytestmark = pytest.mark.namespaces


@pytest.fixture
def machines(tmp_path: Path, no_leaks: None) -> Iterator[Cluster]:
    """A control machine and two training machines."""
    with cluster(tmp_path) as made:
        yield made


def test_a_job_on_two_machines_loses_a_rank(machines: Cluster, text: Path, spec: Callable[..., dict[str, Any]]) -> None:
    assert_apart(machines)
    calm = spec("calm")
    shutil.copytree(text, machines.shared / "text")
    data = {"train": [str(machines.shared / "text")], "validation": [str(machines.shared / "text/heapq.py")]}
    calm["workload"]["data"] = data
    disturbed = copy.deepcopy(calm) | {
        "name": "disturbed",
        "faults": [{"at": {"rank": 3, "step": 12, "phase": "backward"}, "do": "sigkill"}],
    }

    control, job = machines.submit(calm), machines.submit(disturbed)

    assert (control.state, job.state) == ("SUCCEEDED", "SUCCEEDED")
    assert not control.incidents
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.recovery_action) == ("rank_exit", 3, "respawn")
    for placed in (control, job):
        assert [place.address for place in placed.placement] == [TRAINING[0]] * 2 + [TRAINING[1]] * 2
    assert job.digest.parameters and job.digest.samples
    assert job.digest == control.digest
    ledger = machines.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert ledger.steps == control.step == calm["training"]["steps"]
    assert list((machines.shared / "storage/jobs" / job.id / "checkpoints").glob("*/manifest.json"))


@pytest.mark.slow
def test_storage_of_each_machine_alone_is_refused_before_training(
    machines: Cluster, text: Path, spec: Callable[..., dict[str, Any]]
) -> None:
    apart = spec("apart", storage_uri="file:///tmp/storage")
    shutil.copytree(text, machines.shared / "text")
    apart["workload"]["data"] = {"train": [str(machines.shared / "text")]}
    job = machines.client.wait(machines.client.submit(apart).id, timeout_s=120)
    assert (job.state, job.reason, job.step) == ("FAILED", "invalid_input", 0), job.message
    assert "storage_uri 'file:///tmp/storage/" in job.message and "is not shared: " in job.message
    assert all(address in job.message for address in TRAINING), "both nodes are named"
    assert not machines.client.checkpoints(job.id)


def assert_apart(machines: Cluster) -> None:
    """Check that a training machine sees neither files nor ports of the other, and that both see the shared folder."""
    one, other = machines.training
    for folder in ("/dev/shm", "/tmp", "."):
        one.run("touch", f"{folder}/only-here")
        assert "only-here" in one.run("ls", folder)
        assert "only-here" not in other.run("ls", folder)
        one.run("rm", f"{folder}/only-here")
    one.run("touch", str(machines.shared / "for-both"))
    other.run("rm", str(machines.shared / "for-both"))
    for machine in (one, other):
        assert machine.address in machine.run("ip", "-4", "-brief", "address")
    assert other.address not in one.run("ip", "-4", "-brief", "address")
