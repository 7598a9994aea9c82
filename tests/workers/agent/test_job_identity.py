"""A node that cannot run a job as a user of its own starts none of its processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from regroup.workers.agent import job_identity
from regroup.workers.agent.job_identity import UserUnavailable
from regroup.workers.contract.agent_config import AgentConfig
from tests.support.machines.other_users import FIRST_USER, LAST_USER, python_for_all

RANGE = f"{FIRST_USER}-{LAST_USER}"
STARTS = """
import asyncio, sys
from pathlib import Path
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.job_identity import UserUnavailable
from regroup.workers.contract.agent_config import AgentConfig

async def main():
    folder, users = sys.argv[1:]
    uri = f"file://{folder}"
    config = AgentConfig("job_alone", "t", "n", "node-1", "127.0.0.1", "s", uri, uri, log_dir=folder, rank_users=users)
    host = JobHost(config, None, lambda: None)
    for start in (host.prepare, host.acquire_zygote, lambda: host.start_store(1)):
        try:
            begun = start()
            if asyncio.iscoroutine(begun):
                await begun
            print("started")
        except UserUnavailable as error:
            print(error)
    await host.close()

asyncio.run(main())
"""
ASSIGNS = """
import sys, tempfile
from pathlib import Path
from regroup.workers.agent import job_identity
from regroup.workers.contract.agent_config import AgentConfig
scratch = Path(sys.argv[1])
tempfile.tempdir = str(scratch.parent)
config = AgentConfig("job_1", "t", "n", "node-1", "127.0.0.1", "s", "", "", rank_users=sys.argv[2])
identity = job_identity.assign(config, scratch)
identity.require()
print(identity.user)
"""


def config(**parts: str) -> AgentConfig:
    return AgentConfig("job_1", "t", "n", "node-1", "127.0.0.1", "s", "file:///s", "file:///d", **parts)  # type: ignore[arg-type]


@pytest.mark.users
def test_an_agent_without_the_right_to_switch_users_starts_nothing(tmp_path: Path) -> None:
    command = ["setpriv", "--bounding-set=-setuid", sys.executable, "-c", STARTS, str(tmp_path), RANGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and "started" not in lines
    reason = "cannot run ranks as a user of their own: the agent is root without the capabilities SETUID"
    assert all(reason in line and "node-1" in line for line in lines), lines


def test_without_a_range_processes_run_as_the_user_of_the_agent(tmp_path: Path) -> None:
    identity = job_identity.assign(config(), tmp_path)
    assert identity.user is None
    identity.require()


def test_a_job_without_a_user_is_refused_with_the_remedy() -> None:
    identity = job_identity.JobIdentity(node="node-1", obstacle="the agent runs as user 1000")
    with pytest.raises(UserUnavailable, match=r"node-1.*user 1000.*Start the agents as root, or unset") as refused:
        identity.require()
    assert refused.value.is_of_node, "another node may have the right"


@pytest.mark.users
def test_the_scratch_folder_stays_that_of_the_agent(tmp_path: Path) -> None:
    scratch = tmp_path / "regroup-job_1-n"
    scratch.mkdir(mode=0o700)
    command = [python_for_all(tmp_path), "-c", ASSIGNS, str(scratch), RANGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    user, found, home = int(done.stdout), scratch.stat(), (scratch / job_identity.HOME).stat()
    assert FIRST_USER <= user <= LAST_USER
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, user, 0o710)
    assert (home.st_uid, home.st_gid, home.st_mode & 0o777) == (user, user, 0o700)
