"""Other users of the machine reach nothing of a real server with a job: no route, no file, no token."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.client import Client
from regroup.api.schemas.jobs import Job
from regroup.service.local import processes, ray_cluster
from regroup.service.local.api_token import own_token
from tests.support.servers.regroup_server import Server, eventually

pytestmark = pytest.mark.slow
IN_THE_SHELL = "token-in-the-shell-of-the-user-4f1d"
WRITES = """
import os, sys, time
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo")
folder = Path(sys.argv[1])
if dist.get_rank() == 0:
    (folder / "model.pt").write_text("weights")
    (folder / "environment").write_text("\\0".join(f"{name}={value}" for name, value in os.environ.items()))
dist.barrier()
while not (folder / "go").exists():
    time.sleep(0.02)
"""


class OwnServer(Server):
    """A server with the token that it creates, started in a shell that has variables of another server."""

    def start(self) -> None:
        """Start the server, and connect with its own token."""
        super().start()
        self.client = Client(self.url, token=own_token(self.state))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "state").mkdir()
    (folder / "state").chmod(0o755)
    given = {"REGROUP_TOKEN_FILE": "", "REGROUP_TOKEN": IN_THE_SHELL, "REGROUP_VENVS_DIR": str(folder / "venvs")}
    before = os.umask(0o022)
    try:
        server = OwnServer(folder / "state", nodes=1, environment=given)
        server.start()
    finally:
        os.umask(before)
    yield server
    server.down()


@pytest.fixture(scope="module")
def running(own: OwnServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Path]]:
    """A script that has written its files and waits, and its folder."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(WRITES)
    workload = {"kind": "script", "entrypoint": str(folder / "train.py"), "args": [str(folder)]}
    job = own.client.submit({"name": "writes", "workload": workload, "layout": {"dp": 2}})
    eventually(lambda: (folder / "environment").exists(), 120)
    yield job, folder
    (folder / "go").touch()
    done = own.client.wait(job.id, timeout_s=60)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)


def open_paths(root: Path) -> list[str]:
    """Return what another user could open below a folder, or does not belong to this user."""
    found: list[str] = []
    for folder, folders, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in (*folders, *files))):
            with contextlib.suppress(FileNotFoundError):  # the server replaces files
                entry = path.lstat()
                is_open = stat.S_IMODE(entry.st_mode) & 0o077 and not stat.S_ISLNK(entry.st_mode)
                if is_open or entry.st_uid != os.getuid():
                    found.append(f"{path} {stat.S_IMODE(entry.st_mode):04o} {entry.st_uid}")
    return found


def is_private(folder: Path) -> bool:
    return stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.stat().st_uid == os.getuid()


def logs_of(own: OwnServer) -> Mapping[Path, int]:
    """Return the mode of each file of regroup in the log folders of the nodes."""
    cluster = ray_cluster.load(own.state)
    assert cluster is not None
    found = Path(cluster.temp_dir).glob("*/session_*/logs/regroup-*")
    return {path: stat.S_IMODE(path.stat().st_mode) for path in found}


def test_no_process_below_the_server_has_the_token_in_its_environment(
    own: OwnServer, running: tuple[Job, Path]
) -> None:
    cluster = ray_cluster.load(own.state)
    assert cluster is not None
    below = processes.find_marked("REGROUP_RAY_CLUSTER", cluster.id)
    titles = [process.name for process in below]
    assert len(below) > 6, titles
    environments = {process: b"\0".join(processes.variables(process.pid)) for process in below if process.is_alive}
    seen = [*environments.values(), (running[1] / "environment").read_bytes()]
    for token in (own_token(own.state), IN_THE_SHELL):
        assert [variables for variables in seen if token.encode() in variables] == []
    assert b"REGROUP_TOKEN" not in b"\0".join(seen)


def test_the_command_line_finds_the_token_by_itself(own: OwnServer, running: tuple[Job, Path]) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("REGROUP_TOKEN")}
    command = [sys.executable, "-m", "regroup.api.cli", "get", running[0].id, "--json"]

    def run(environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    done = run({**plain, "REGROUP_STATE_DIR": str(own.state)})
    assert (done.returncode, json.loads(done.stdout)["id"]) == (0, running[0].id), done.stderr
    for given in ({}, {"REGROUP_TOKEN": "wrong"}):
        refused = run({**plain, **given, "REGROUP_STATE_DIR": "/nowhere", "REGROUP_SERVER": own.url})
        assert refused.returncode == 7 and str(own.state / "api.token") in refused.stderr, refused.stderr


def anonymous(url: str) -> int:
    """Return the status of a request without the token."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.parametrize(
    ("path", "status"),
    [("/livez", 200), ("/readyz", 200), ("/metrics", 401), ("/v1/jobs", 401), ("/openapi.json", 401)],
)
def test_another_program_gets_only_the_probes(own: OwnServer, path: str, status: int) -> None:
    assert anonymous(f"{own.url}{path}") == status


def test_another_user_reads_no_file_of_the_state_directory(own: OwnServer) -> None:
    # Root can become another user. For others, the modes of the files are the proof.
    options: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for name in ("api.token", "regroup.db", "ray.token", "server.json"):
        done = subprocess.run(
            ["/bin/cat", str(own.state / name)], cwd="/", capture_output=True, timeout=60, check=False, **options
        )
        assert (done.returncode == 0) == (os.geteuid() != 0), (name, done.stdout, done.stderr)
        assert options == {} or b"Permission denied" in done.stderr, done.stderr


def test_every_file_is_private_while_a_job_runs_and_after_it(
    own: OwnServer, running: tuple[Job, Path], tmp_path: Path
) -> None:
    job, folder = running
    assert open_paths(own.state) == []
    names = {path.name for path in own.state.iterdir()}
    assert {"api.token", "regroup.db", "ray.token", "ray.json", "server.json"} <= names
    cluster = ray_cluster.load(own.state)
    assert cluster is not None and is_private(Path(cluster.temp_dir)), "Ray opens its own folders below this one"
    modes = logs_of(own)
    assert len(modes) >= 4 and set(modes.values()) == {0o600}, modes
    scratch = list(Path(tempfile.gettempdir()).glob(f"regroup-{job.id}-*"))
    assert len(scratch) == 1 and is_private(scratch[0])
    assert stat.S_IMODE((folder / "model.pt").stat().st_mode) == 0o644, "files of user code have the user's umask"

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "fails.py").write_text("raise RuntimeError('for evidence')")
    spec = {"name": "fails", "workload": {"kind": "script", "entrypoint": "fails.py"}, "layout": {"dp": 1}}
    (folder / "go").touch()
    own.client.wait(job.id, timeout_s=60)
    failed = own.run({**spec, "code": {"working_dir": str(tmp_path / "code")}})
    assert failed.state == "FAILED"
    eventually(lambda: not own.agents(), 30)
    kept = [path for path in own.state.rglob("*") if path.is_file()]
    for part in ("blobs", "logs", "evidence"):
        assert [path for path in kept if part in path.parts], (part, kept)
    assert open_paths(own.state) == []
