"""A job that stores everything in a bucket. Its agents have the credentials, its ranks do not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.storage import fsspec_storage
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually
from tests.support.servers.s3 import ObjectStorage

Spec = Callable[..., dict[str, Any]]

WITNESS = """
import os
def testify():
    seen = sorted(name for name in os.environ if name.startswith("AWS_"))
    with open(os.path.join(os.environ["WITNESS"], str(os.getpid())), "w") as file:
        file.write(" ".join(seen))
os.register_at_fork(after_in_child=testify)
"""


@pytest.fixture(scope="module")
def served_with_keys(s3: ObjectStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of one node with the bucket's credentials in its environment."""
    server = Server(tmp_path_factory.mktemp("served-s3") / "state", nodes=1, environment=s3.environment)
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_a_job_uses_a_bucket_and_restores_from_it(
    served_with_keys: Server, s3: ObjectStorage, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "witness.py").write_text(WITNESS)
    (tmp_path / "seen").mkdir()
    gates, client = Gates(tmp_path, 5, 9), served_with_keys.client
    submitted = client.submit(
        spec(
            "bucket",
            steps=16,
            storage_uri=f"{s3.uri}/end-to-end",
            layout={"dp": 2},
            checkpoint={"every_steps": 4, "keep_last": 2},
            snapshot={"mirror": "off"},
            env={**gates.parts["env"], "WITNESS": str(tmp_path / "seen")},
            preload=["witness", *gates.parts["preload"]],
            faults=[{"at": {"rank": 1, "step": 10, "phase": "forward"}, "do": "kill_agent"}],
        )
    )
    for saved_at in (4, 8):  # a checkpoint that is due while the former one is being written is postponed
        eventually(lambda step=saved_at: step in [saved.step for saved in client.checkpoints(submitted.id)], 120)
        gates.open(saved_at + 1)
    job = client.wait(submitted.id, timeout_s=240)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    ledger = served_with_keys.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    (incident,) = job.incidents
    assert (incident.reason, incident.recovery_action) == ("agent_lost", "disk")
    assert incident.steps_lost is not None and incident.steps_lost < 4, "the newest checkpoint is that of step 8"
    testimonies = list((tmp_path / "seen").iterdir())
    assert len(testimonies) >= 4  # two ranks in each of two generations
    assert {path.read_text() for path in testimonies} == {""}

    kept = served_with_keys.client.checkpoints(job.id, removed=True)
    assert [saved.step for saved in kept if saved.removed_at is None][-1] == 16
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    for saved in kept:
        assert saved.uri.startswith(f"{s3.uri}/end-to-end/")
        is_there = fsspec_storage.read_bytes(fsspec_storage.join(saved.uri, "manifest.json")) is not None
        assert is_there == (saved.removed_at is None)
