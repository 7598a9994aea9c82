"""A project with its own packages api, service and workers trains with the installed wheel."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packages.wheel import PACKAGES, run
from tests.support.servers.regroup_server import Server

# The zygote imports this module, so every rank sees the same.
MODULES = """
import json, os, pathlib
import api, service, workers
import regroup.workers.rank.main
seen = {module.__name__: [module.OWNER, module.__file__] for module in (api, service, workers)}
seen["regroup"] = regroup.workers.__file__
path = pathlib.Path(os.environ["SEEN"])
path.write_text(json.dumps(seen))
"""

CLIENT = """
import sys
import api, service, workers
from regroup.api.client.client import Client
assert {api.OWNER, service.OWNER, workers.OWNER} == {"the user"}
with Client(sys.argv[1]) as client:
    job = client.wait("neighbour", timeout_s=200)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    print(job.state, len(list(client.steps(job.id))))
"""


@pytest.fixture
def server(installed: Path, neighbour: Path) -> Iterator[Server]:
    """A server of the installed wheel, started in the project's folder."""
    server = Server(
        neighbour / "state",
        nodes=1,
        python=installed / "bin" / "python",
        cwd=neighbour,
        environment={"PYTHONPATH": str(neighbour)},
    )
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_server_command_line_client_and_job_run_with_packages_of_the_same_names(
    server: Server, installed: Path, neighbour: Path, text: Path
) -> None:
    (neighbour / "workers" / "modules.py").write_text(MODULES)
    (neighbour / "client.py").write_text(CLIENT)
    spec = {
        "name": "neighbour",
        "workload": {
            "kind": "builtin",
            "model": {"dim": 16, "layers": 1, "heads": 2},
            "data": {"train": [str(text / "heapq.py")]},
        },
        "training": {"global_batch": 4, "micro_batch": 1, "sequence": 32, "steps": 3},
        "layout": {"dp": 2},
        "env": {"PYTHONPATH": str(neighbour), "SEEN": str(neighbour / "seen.json")},
        "preload": ["workers.modules"],
    }
    (neighbour / "job.json").write_text(json.dumps(spec))
    inside = {"PYTHONPATH": str(neighbour), "REGROUP_SERVER": server.url}
    run(installed / "bin" / "regroup", "submit", "job.json", cwd=neighbour, **inside)
    done = run(installed / "bin" / "python", "client.py", server.url, cwd=neighbour, **inside)
    assert done.stdout == "SUCCEEDED 3\n"
    seen = json.loads((neighbour / "seen.json").read_text())
    assert seen.pop("regroup").startswith(str(installed))
    assert seen == {name: ["the user", str(neighbour / name / "__init__.py")] for name in PACKAGES}
    shown = json.loads(run(installed / "bin" / "regroup", "get", "neighbour", "--json", cwd=neighbour, **inside).stdout)
    assert shown["state"] == "SUCCEEDED"
