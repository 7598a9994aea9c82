"""A server of an ordinary user: jobs run, recover and end as those of root, which runs all other tests.

Agents, supervisors and servers hide their memory, environment and open files from processes of their own user. Root
sees them nevertheless, an ordinary user does not.
"""

import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.local.api_token import TOKEN_FILE_VARIABLE
from regroup.service.local.private_files import create_private
from regroup.workers.os.process_user import real_user
from tests.support.machines.other_users import USER, python_for_all
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

pytestmark = [pytest.mark.users, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder of the user, which every user can read, unlike the temporary folders of tests."""
    made = Path(tempfile.mkdtemp(prefix="regroup-user-"))
    os.chown(made, USER, USER)
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    token = folder / "api.token"
    create_private(token, Path(os.environ[TOKEN_FILE_VARIABLE]).read_text())
    os.chown(token, USER, USER)
    environment = {"HOME": str(folder), "TMPDIR": str(folder), TOKEN_FILE_VARIABLE: str(token)}
    made = Server(folder / "state", nodes=2, python=python_for_all(folder, USER), environment=environment)
    made.start()
    yield made
    assert processes_of(USER)
    made.down()
    eventually(lambda: not processes_of(USER), 10)


def spec(folder: Path, name: str, **parts: Any) -> dict[str, Any]:
    shutil.copy(Path(sysconfig.get_path("stdlib")) / "argparse.py", folder)
    workload = {"kind": "builtin", "model": {"dim": 32, "layers": 2, "heads": 2}}
    return {
        "name": name,
        "workload": {**workload, "data": {"train": [str(folder / "argparse.py")]}},
        "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": 24},
        "layout": {"dp": 2},
        "checkpoint": {"every_steps": 8},
        "snapshot": {"every_steps": 1},
        **parts,
    }


def test_jobs_of_an_ordinary_user_recover_and_leave_nothing(server: Server, folder: Path) -> None:
    control = server.run(spec(folder, "control"))
    assert control.state == "SUCCEEDED", (control.reason, control.message, control.error)
    for do in ("sigkill", "kill_zygote", "kill_agent"):
        faults = [{"at": {"rank": 1, "step": 12, "phase": "forward"}, "do": do}]
        job = server.run(spec(folder, do.replace("_", "-"), faults=faults))
        assert_same_result(server, job, control)
        assert len(job.incidents) == 1, do


def processes_of(user: int) -> list[int]:
    return [int(each.name) for each in Path("/proc").glob("[0-9]*") if real_user(int(each.name)) == user]
