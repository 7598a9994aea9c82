"""The value of a secret reaches only the ranks: no log, event, returned spec, crash report or database."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.local import ray_cluster
from tests.support.servers.regroup_server import Server

Spec = Callable[..., dict[str, Any]]
VALUE = "hunter2-4f1d09c6"
PART = "4f1d09c6"

READS = f"""
import hashlib, os, pathlib
names = [name for name in ("TOKEN", "PASSWORD") if {PART!r} in os.environ.get(name, "")]
pathlib.Path(os.environ["REPORT"]).write_text(" ".join(names))
if os.environ["THEN"] == "raise":
    raise RuntimeError("the preload failed")
"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a node that has a Secret mounted and a variable set."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "mounts" / "tracker").mkdir(parents=True)
    (folder / "mounts" / "tracker" / "token").write_text(VALUE)
    environment = {"REGROUP_SECRETS_DIR": str(folder / "mounts"), "OF_THE_NODE": VALUE}
    server = Server(folder / "state", nodes=1, environment=environment)
    server.start()
    yield server
    server.down()


@pytest.mark.parametrize(("then", "state"), [("go on", "SUCCEEDED"), ("raise", "FAILED")])
def test_a_value_is_only_in_the_ranks(mounted: Server, spec: Spec, tmp_path: Path, then: str, state: str) -> None:
    (tmp_path / "reads.py").write_text(READS)
    env = {"PYTHONPATH": str(tmp_path), "REPORT": str(tmp_path / "report"), "THEN": then}
    secrets = {
        "TOKEN": {"from_kubernetes": {"name": "tracker", "key": "token"}},
        "PASSWORD": {"from_env": "OF_THE_NODE"},
    }
    job = mounted.run(
        spec(f"secret-{state.lower()}", steps=4, layout={"dp": 2}, env=env, secrets=secrets, preload=["reads"])
    )
    assert job.state == state, (job.reason, job.message, job.error)
    assert (tmp_path / "report").read_text() == "TOKEN PASSWORD"
    events = [event.model_dump(mode="json") for event in mounted.client.events(job.id)]
    assert job.spec.secrets["TOKEN"].from_kubernetes is not None
    assert PART not in json.dumps([job.model_dump(mode="json"), events])
    cluster = ray_cluster.load(mounted.state)
    assert cluster is not None
    searched = [mounted.state, mounted.state.parent / "server.log", Path(cluster.temp_dir)]
    assert _files_with(PART, searched) == []


def test_a_secret_that_is_not_mounted_ends_the_job_with_its_name_and_node(mounted: Server, spec: Spec) -> None:
    secrets = {"TOKEN": {"from_kubernetes": {"name": "tracker", "key": "other"}}}
    job = mounted.run(spec("no-secret", layout={"dp": 2}, secrets=secrets))
    assert job.state == "FAILED"
    assert "key other of Secret tracker is not mounted on node" in job.message


def _files_with(text: str, roots: list[Path]) -> list[str]:
    """Return the files below `roots` that contain `text`; fail if a root has no files."""
    found: list[str] = []
    seen = 0
    for root in roots:
        assert root.exists(), root
        for folder, _, names in os.walk(root) if root.is_dir() else [(root.parent, [], [root.name])]:
            for path in (Path(folder) / name for name in names):
                if path.is_file() and not path.is_symlink():
                    seen += 1
                    found += [str(path)] if text.encode() in path.read_bytes() else []
    assert seen > 20, "logs, database and storage were searched"
    return found
