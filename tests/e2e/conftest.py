"""One server for all tests of this folder, and the undisturbed run with which they compare others."""

import contextlib
import shutil
import sysconfig
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.connection.errors import ServerUnreachableError
from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server

LIVE = ("QUEUED", "PLACING", "STARTING", "RUNNING", "RECOVERING", "RESIZING", "DRAINING", "SUSPENDED")
_SHARED = ("served", "three", "two", "mounted", "isolated")
"""Fixtures: servers that several tests use, one after the other."""
_failed = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the whole session. Checks of leaks read Ray's actors from its dashboard."""
    folder = tmp_path_factory.mktemp("served")
    environment = {"REGROUP_VENVS_DIR": str(folder / "venvs"), "REGROUP_RAY_DASHBOARD": "true"}
    environment |= {"REGROUP_HOOK_PRIVATE_NETWORKS": "127.0.0.0/8"}  # receivers of notifications
    server = Server(folder / "state", environment=environment)
    server.start()
    yield server
    server.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def no_job_outlives_a_failed_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel the jobs of a failed test: they would hold the nodes that the next tests need."""
    servers: list[Server] = [request.getfixturevalue(name) for name in _SHARED if name in request.fixturenames]
    before = {job.id for server in servers for job in server.client.jobs(state=LIVE)}
    yield
    if not request.node.stash.get(_failed, False):  # no entry: an interruption ended the test
        return
    for server in servers:
        with contextlib.suppress(ServerUnreachableError):  # the test ended the server
            left = [job.id for job in server.client.jobs(state=LIVE) if job.id not in before]
            for job in left:
                server.client.cancel(job)
            for job in left:
                server.client.wait(job, timeout_s=60)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with real text: a few modules of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    for name in ("argparse", "ast", "calendar", "dataclasses", "datetime", "difflib", "enum", "heapq"):
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", folder)
    return folder


@pytest.fixture(scope="session")
def spec(text: Path) -> Callable[..., dict[str, Any]]:
    """A function that returns a small job on 2 × 2 ranks; keyword arguments replace whole parts of it."""

    def build(name: str, *, steps: int = 24, **parts: Any) -> dict[str, Any]:
        return {
            "name": name,
            "workload": {
                "kind": "builtin",
                "model": {"dim": 32, "layers": 2, "heads": 2},
                "data": {"train": [str(text)], "validation": [str(text / "heapq.py")]},
            },
            "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": steps},
            "layout": {"dp": 4},
            "checkpoint": {"every_steps": 8},
            **parts,
            # Each step, so that the cost of a failure is known.
            "snapshot": {"every_steps": 1, **parts.get("snapshot", {})},
        }

    return build


@pytest.fixture(scope="session")
def control(served: Server, spec: Callable[..., dict[str, Any]]) -> Job:
    """The undisturbed run, with which every disturbed one is compared."""
    job = served.run(spec("control"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job
