"""The value of a secret reaches only the ranks: no log, event, returned spec, crash report or database."""

import base64
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.exec import ExecOutput
from regroup.service.local import ray_cluster
from tests.support.servers.regroup_server import Server, eventually

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


LEAKS = """
import base64, os, sys
secret = os.environ["TOKEN"]
print("printed", secret, "and more", base64.b64encode(secret.encode()).decode(), flush=True)
message = f"boom x?key={secret}&y"
if sys.argv[1] == "raises":
    raise RuntimeError(message)
print(message, file=sys.stderr, flush=True)
if sys.argv[1] == "aborts":
    os.abort()
os._exit(3)
"""
BASE64 = base64.b64encode(VALUE.encode()).decode()


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


@pytest.mark.parametrize("kind", ["raises", "exits", "aborts"])
def test_a_value_that_a_script_prints_and_raises_leaves_the_node_nowhere(
    mounted: Server, tmp_path: Path, kind: str
) -> None:
    """Check it with a message as many libraries write it: it has the address with the password."""
    (tmp_path / "train.py").write_text(LEAKS)
    workload = {"kind": "script", "entrypoint": str(tmp_path / "train.py"), "args": [kind]}
    secrets = {"TOKEN": {"from_kubernetes": {"name": "tracker", "key": "token"}}}
    parts = {"layout": {"dp": 1}, "secrets": secrets, "recovery": {"budgets": {"rank_exit": 0}}}
    job = mounted.run({"name": f"leaks-{kind}", "workload": workload, **parts})
    assert job.state == "FAILED"
    eventually(lambda: not mounted.agents(), 30)
    client = mounted.client
    output = {stream: "".join(client.logs(job.id, stream=stream, generation=1)) for stream in ("stdout", "stderr")}
    assert f"printed {'*' * len(VALUE)} and more" in output["stdout"]
    with zipfile.ZipFile(io.BytesIO(client.evidence(job.id, 1))) as bundle:
        evidence = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert "boom" in str(evidence)
    shown = {
        "job": client.get(job.id).model_dump_json(),
        "why": client.why(job.id).model_dump_json(),
        "events": [event.model_dump_json() for event in client.events(job.id)],
        **output,
        **evidence,
    }
    assert [name for name, text in shown.items() if PART in str(text)] == []
    assert [name for name, text in shown.items() if BASE64 in str(text)] == []
    kept = [path for path in mounted.state.rglob("*") if path.is_file()]
    assert [path for path in kept if PART.encode() in path.read_bytes()] == []
    if kind == "raises":
        assert "boom x?key=***&y" in str(shown["job"]) and "boom x?key=***&y" in str(shown["why"])


def test_output_and_arguments_of_a_command_have_no_value(mounted: Server, tmp_path: Path) -> None:
    waits = "import time, torch.distributed as dist; dist.init_process_group('gloo'); time.sleep(1000)"
    (tmp_path / "train.py").write_text(waits)
    workload = {"kind": "script", "entrypoint": str(tmp_path / "train.py")}
    secrets = {"TOKEN": {"from_env": "OF_THE_NODE"}}
    job = mounted.client.submit({"name": "commands", "workload": workload, "layout": {"dp": 1}, "secrets": secrets})
    eventually(lambda: mounted.client.get(job.id).state == "RUNNING")
    command = ["sh", "-c", f'echo "my $TOKEN"; echo {VALUE} >&2; env']
    found = list(mounted.client.exec(job.id, command, rank=0))
    written = b"".join(event.data for event in found if isinstance(event, ExecOutput))
    assert b"my " + b"*" * len(VALUE) in written and PART.encode() not in written
    (event,) = [event for event in mounted.client.events(job.id) if event.type == "exec"]
    assert (event.data["command"], event.data["arguments"]) == ("sh", 2)
    assert PART not in event.model_dump_json()
    mounted.client.cancel(job.id)
    mounted.client.wait(job.id, timeout_s=60)


NEWEST = "hunter3-8b2e77aa"
STORED_PARTS = (PART, "8b2e77aa")
RECORDS = """
import os, pathlib, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
folder = pathlib.Path(os.environ["REPORT"])
print("printed", os.environ["TOKEN"], flush=True)
with (folder / "values").open("a") as file:
    file.write(os.environ["TOKEN"] + "\\n")
while not (folder / "go").exists():
    time.sleep(0.05)
if (folder / "values").read_text().count("\\n") == 1:
    print(f"no answer from https://host/?key={os.environ['TOKEN']}", file=sys.stderr, flush=True)
    os._exit(3)
"""


def test_a_stored_secret_reaches_ranks_and_nothing_else(mounted: Server, tmp_path: Path) -> None:
    """Give the first generation the first value, and the second one the value that was set in between."""
    client = mounted.client
    client.set_secret("default", "tracker", VALUE)
    (tmp_path / "train.py").write_text(RECORDS)
    report = tmp_path / "report"
    report.mkdir()
    workload = {"kind": "script", "entrypoint": str(tmp_path / "train.py")}
    secrets = {"TOKEN": {"from_project": "tracker"}}
    parts = {"layout": {"dp": 1}, "env": {"REPORT": str(report)}, "recovery": {"budgets": {"rank_exit": 2}}}
    job = client.submit({"name": "stored", "workload": workload, "secrets": secrets, **parts})
    eventually(lambda: (report / "values").exists() and (report / "values").read_text(), 120)
    assert client.secret("default", "tracker").used_at is not None
    eventually(lambda: client.get(job.id).state == "RUNNING")  # the script writes before its rank is reported
    found = list(client.exec(job.id, ["sh", "-c", 'echo "my $TOKEN"'], rank=0))
    written = b"".join(event.data for event in found if isinstance(event, ExecOutput))
    assert b"my " + b"*" * len(VALUE) in written
    used_at = client.secret("default", "tracker").used_at
    client.set_secret("default", "tracker", NEWEST)
    eventually(lambda: client.secret("default", "tracker").used_at != used_at, 60)
    (report / "go").touch()
    ended = client.wait(job.id, timeout_s=240)
    assert ended.state == "SUCCEEDED", (ended.reason, ended.message)
    assert (report / "values").read_text().split() == [VALUE, NEWEST]
    eventually(lambda: not mounted.agents(), 30)
    shown = {
        "job": ended.model_dump_json(),
        "why": client.why(job.id).model_dump_json(),
        "events": json.dumps([event.model_dump(mode="json") for event in client.events(job.id)]),
        "audit": mounted.get("/v1/audit"),
        "export": mounted.get("/v1/audit/export"),
        "metrics": mounted.get("/metrics"),
        "secrets": mounted.get("/v1/projects/default/secrets"),
        **{f"output {number}": "".join(client.logs(job.id, generation=number)) for number in (1, 2)},
        **{f"errors {number}": "".join(client.logs(job.id, stream="stderr", generation=number)) for number in (1, 2)},
        **{f"evidence {each.number}": str(client.evidence(job.id, each.number)) for each in client.incidents(job.id)},
    }
    assert "printed ****" in shown["output 1"] and "printed ****" in shown["output 2"]
    assert '"secrets.set"' in shown["audit"] and "tracker" in shown["export"]
    assert [name for name, text in shown.items() if any(part in text for part in STORED_PARTS)] == []
    kept = [path for path in mounted.state.rglob("*") if path.is_file()]
    assert any(path.name == "secrets.key" for path in kept) and any(path.name == "regroup.db" for path in kept)
    assert [str(path) for path in kept if any(part.encode() in path.read_bytes() for part in STORED_PARTS)] == []
    log = (mounted.state.parent / "server.log").read_text()
    assert not any(part in log for part in STORED_PARTS)


def test_a_job_waits_while_its_secret_cannot_be_read(mounted: Server, tmp_path: Path) -> None:
    client, key = mounted.client, mounted.state / "secrets.key"
    client.set_secret("default", "late", VALUE)
    away = key.rename(mounted.state / "secrets.away")
    try:
        (tmp_path / "train.py").write_text("")
        workload = {"kind": "script", "entrypoint": str(tmp_path / "train.py")}
        parts = {"layout": {"dp": 1}, "secrets": {"TOKEN": {"from_project": "late"}}}
        job = client.submit({"name": "waits", "workload": workload, **parts})
        waiting = eventually(lambda: [each for each in client.get(job.id).conditions if not each.status], 30)
        assert "secrets.key cannot be read" in waiting[0].message
    finally:
        away.rename(key)
    assert client.wait(job.id, timeout_s=120).state == "SUCCEEDED"


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
