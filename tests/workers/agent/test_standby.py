"""An agent in waiting without Ray: a real zygote, taken by one job or replaced for it."""

import asyncio
import hashlib
import os
import signal
import tarfile
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from ray._private import auto_init_hook

from regroup.workers.agent.health import preflight
from regroup.workers.agent.standby import StandbyAgent
from regroup.workers.contract.agent_api import AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, PreflightRequest
from regroup.workers.contract.messages import to_json
from regroup.workers.os import kill_tree, orphans, procfs, scratch_dir


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent looks for its supervisor; that must not start a Ray here."""
    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", False)


@pytest.fixture
def platform(tmp_path: Path) -> AgentConfig:
    return AgentConfig(
        job_id="",
        job_name="standby",
        node_id="node0",
        node_name="n0",
        address="127.0.0.1",
        supervisor="",
        storage_uri="",
        datasets_uri="",
        preload=("json",),
    )


@pytest.fixture
def job(platform: AgentConfig, tmp_path: Path) -> AgentConfig:
    storage = tmp_path.as_uri()
    return replace(platform, job_id=uuid.uuid4().hex[:16], job_name="gpt", storage_uri=storage, datasets_uri=storage)


@pytest.fixture
async def waiting(platform: AgentConfig) -> AsyncIterator[StandbyAgent]:
    agent = StandbyAgent(to_json(platform))
    await agent.prewarm()
    yield agent
    await agent.shutdown()


def zygotes() -> set[int]:
    """Pids of zygotes below this process."""
    found = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in procfs.children(os.getpid())}
    return {pid for pid, command in found.items() if "regroup.workers.zygote.zygote" in command}


async def test_its_zygote_becomes_the_jobs(waiting: StandbyAgent, job: AgentConfig) -> None:
    (before,) = zygotes()
    assert await waiting.adopt(to_json(replace(job, preload=("json", "csv"))))
    ready = await waiting.start_zygote()
    assert ready.pid == before and zygotes() == {before}
    assert (await waiting.status()).pids.zygote == before


async def test_a_job_with_an_environment_of_its_own_gets_a_zygote_of_its_own(
    waiting: StandbyAgent, job: AgentConfig
) -> None:
    (before,) = zygotes()
    assert await waiting.adopt(to_json(replace(job, env={"OMP_PROC_BIND": "true"})))
    ready = await waiting.start_zygote()
    assert ready.pid != before and zygotes() == {ready.pid}


async def test_it_serves_one_job(waiting: StandbyAgent, job: AgentConfig) -> None:
    assert await waiting.adopt(to_json(job))
    assert await waiting.adopt(to_json(job)), "asked again by the same job"
    assert not await waiting.adopt(to_json(replace(job, job_id="2" * 16)))


async def test_a_dead_zygote_is_not_handed_on(waiting: StandbyAgent, job: AgentConfig) -> None:
    (before,) = zygotes()
    kill_tree.kill([before])
    assert await waiting.adopt(to_json(job))
    ready = await waiting.start_zygote()
    assert ready.pid != before


async def test_a_preload_that_fails_is_the_jobs_error_only(waiting: StandbyAgent, job: AgentConfig) -> None:
    assert await waiting.adopt(to_json(replace(job, preload=("no_such_module",))))
    with pytest.raises(AgentFailedError) as failed:
        await waiting.start_zygote()
    assert failed.value.failure.kind is AgentErrorKind.PRELOAD and failed.value.failure.node_name == "n0"


async def test_the_jobs_code_is_first_on_the_path_of_a_zygote_that_waited(
    waiting: StandbyAgent, job: AgentConfig, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import json\nWHERE = __file__\n")
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "mine.py", "mine.py")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (tmp_path / "sha256").mkdir()
    archive.rename(tmp_path / "sha256" / digest)
    (before,) = zygotes()
    mine = replace(job, code=f"sha256:{digest}", blob_uri=tmp_path.as_uri(), preload=("json", "mine"))
    assert await waiting.adopt(to_json(mine))
    ready = await waiting.start_zygote()
    assert ready.pid == before
    assert os.readlink(f"/proc/{before}/cwd").endswith("/code")


async def test_code_that_is_not_there_is_the_jobs_error(
    waiting: StandbyAgent, job: AgentConfig, tmp_path: Path
) -> None:
    assert await waiting.adopt(to_json(replace(job, code=f"sha256:{'0' * 64}", blob_uri=tmp_path.as_uri())))
    with pytest.raises(AgentFailedError) as failed:
        await waiting.start_zygote()
    assert failed.value.failure.kind is AgentErrorKind.CODE


async def test_it_checks_its_node_while_it_waits_and_a_job_need_not_wait_for_that_again(
    platform: AgentConfig, job: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = StandbyAgent(to_json(replace(platform, preload=("torch",), preflight=True)))
    await agent.prewarm()
    assert await agent.describe_faults() == ""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tempfile, "tempdir", str(tmp_path / "unmounted"))
        await agent.prewarm()
        assert (await agent.describe_faults()).startswith(f"64 MiB cannot be written to {tmp_path}/unmounted")
    assert await agent.adopt(to_json(replace(job, preload=("torch",))))
    assert await agent.describe_faults() == "", "it is no standby any more"
    await agent.start_zygote()
    monkeypatch.setattr(preflight, "TARGET", "nowhere:check")
    needs = PreflightRequest("cpu", (), 0, time.time())
    found = await agent.run_preflight(needs)
    assert (found.failed, found.notes) == ((), ())
    too_much = await agent.run_preflight(replace(needs, memory_bytes=1 << 60))
    assert [what for what, _ in too_much.failed] == ["memory"]
    await agent.kill_ranks(1)
    assert (await agent.run_preflight(replace(needs, memory_bytes=1 << 60))).failed == (), "its own are in that memory"
    await agent.shutdown()


async def test_a_node_is_clear_of_a_job_when_the_last_process_of_it_is_dead(waiting: StandbyAgent) -> None:
    job_id = f"job_{uuid.uuid4().hex[:16]}"
    environment = {**os.environ, orphans.VARIABLE: str(scratch_dir.path_of(job_id, "node0"))}
    assert await waiting.is_clear(job_id)
    left = await asyncio.create_subprocess_exec("sleep", "60", env=environment)
    try:
        assert not await waiting.is_clear(job_id)
        left.send_signal(signal.SIGSTOP)
        assert not await waiting.is_clear(job_id), "it may wake"
        assert await waiting.is_clear("job_another")
    finally:
        left.kill()
        await left.wait()
    assert await waiting.is_clear(job_id)


async def test_who_became_a_jobs_agent_proves_nothing(waiting: StandbyAgent, job: AgentConfig) -> None:
    assert await waiting.adopt(to_json(job))
    assert not await waiting.is_clear("job_another")
