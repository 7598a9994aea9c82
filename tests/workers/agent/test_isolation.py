"""Two jobs on one node with users of their own: real zygotes and commands, without Ray and torch.

`tests/e2e/operations/test_isolation.py` does the same with a whole server and ranks.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checks.leaks import SESSION_VARIABLE
from tests.support.jobs import access_attempts, isolated_jobs
from tests.support.machines.other_users import FIRST_USER, LAST_USER, python_for_all

pytestmark = pytest.mark.users
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can read, with the program of the attempts."""
    folder = Path(tempfile.mkdtemp(prefix="regroup-public-"))
    folder.chmod(0o755)
    (folder / "logs").mkdir(mode=0o700)
    shutil.copy(access_attempts.__file__, folder / "attempts.py")
    yield folder
    shutil.rmtree(folder)


def test_a_job_reaches_neither_its_agent_nor_another_job_of_the_node(public: Path) -> None:
    program = [str(python_for_all(public)), "-m", isolated_jobs.__name__]
    environment = {**os.environ, "REGROUP_RANK_ENVIRONMENT": SESSION_VARIABLE}
    done = subprocess.run(
        [*program, str(public), f"{FIRST_USER}-{LAST_USER}"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {key for key, result in found["control"].items() if result != "ok"} == set(), "root reaches everything"
    assert len(found["second"]) == len(found["control"]) > 10
    assert {key for key, result in found["second"].items() if result == "ok"} == set()
    assert found["own"] == "private\nwritten\n", "a job reaches its own files"
    assert len(set(found["users"])) == 2 and all(FIRST_USER <= user <= LAST_USER for user in found["users"])
    variables = found["variables"]
    assert f"KEY={'*' * len('of second')}" in variables, "the output of a command has no secret"
    assert not [line for line in variables if line.startswith(("PLATFORM_", "KEY_OF_"))]
