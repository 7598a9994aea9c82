"""Paths of a job's output on a node."""

from pathlib import Path

import pytest

from regroup.workers.agent.ranks.log_files import LogFiles
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.os import node_facts


def config(log_dir: str = "") -> AgentConfig:
    return AgentConfig(
        job_id="job_1", job_name="gpt", node_id="n", node_name="n", address="::1", supervisor="s", storage_uri="file:///s",
        datasets_uri="file:///d", log_dir=log_dir,
    )  # fmt: skip


def test_names_have_the_job_the_generation_and_the_process() -> None:
    files = LogFiles.of(config("/logs"), Path("/scratch"))
    assert files.rank(2, 3, "stdout") == Path("/logs/regroup-gpt-job_1-g2-rank3.out")
    assert files.rank(2, 3, "stderr").suffix == ".err"
    assert files.base(2, "store").name == f"{files.prefix}g2-store"


@pytest.mark.parametrize("session", [Path("/session/logs"), None])
def test_without_a_configured_folder_they_are_in_that_of_ray(
    session: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_facts, "session_log_dir", lambda: session)
    assert LogFiles.of(config(), Path("/scratch")).folder == (session or Path("/scratch"))
