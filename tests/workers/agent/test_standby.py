"""Standby agents without Ray: a real zygote, adopted by one job or replaced for it."""

import asyncio
import ctypes
import hashlib
import os
import signal
import tarfile
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
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
from regroup.workers.os.secret_source import SecretSource
from regroup.workers.zygote.client import ZygoteLink
from tests.support.machines.zygote_templates import kill_templates, templates


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent that an agent starts Ray in this process when it resolves its supervisor."""
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
async def standby(platform: AgentConfig) -> AsyncIterator[StandbyAgent]:
    agent = StandbyAgent(to_json(platform))
    await agent.prewarm()
    yield agent
    await agent.shutdown()


@pytest.fixture(autouse=True)
def one_template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start templates as a node does: with one environment, by a process that adopts no orphans. End them after."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    adopt_no_orphans()
    yield
    kill_templates()


def adopt_no_orphans() -> None:
    """Undo what the agent of an earlier test did to this process."""
    assert ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


def zygotes() -> set[int]:
    """Return the pids of zygotes below this process and below the template of the node."""
    found = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in procfs.children(os.getpid())}
    started = {pid for pid, command in found.items() if "regroup.workers.zygote.zygote" in command}
    forked = {pid for template in templates() for pid in procfs.children(template)}
    return started | forked


async def test_a_job_uses_the_zygote_of_its_standby(standby: StandbyAgent, job: AgentConfig) -> None:
    (before,) = zygotes()
    assert await standby.adopt(to_json(replace(job, preload=("json", "csv"))))
    ready = await standby.start_zygote()
    assert ready.pid == before and zygotes() == {before}
    assert (await standby.status()).pids.zygote == before


async def test_a_job_with_its_own_environment_gets_its_own_zygote(standby: StandbyAgent, job: AgentConfig) -> None:
    (before,) = zygotes()
    assert await standby.adopt(to_json(replace(job, env={"OMP_PROC_BIND": "true"})))
    ready = await standby.start_zygote()
    assert ready.pid != before and zygotes() == {ready.pid}


async def test_a_standby_serves_one_job(standby: StandbyAgent, job: AgentConfig) -> None:
    assert await standby.adopt(to_json(job))
    assert await standby.adopt(to_json(job)), "a repeated call by the same job"
    assert not await standby.adopt(to_json(replace(job, job_id="2" * 16)))


async def test_a_dead_standby_zygote_is_replaced(standby: StandbyAgent, job: AgentConfig) -> None:
    (before,) = zygotes()
    kill_tree.kill([before])
    assert await standby.adopt(to_json(job))
    ready = await standby.start_zygote()
    assert ready.pid != before


async def test_what_a_dead_zygote_leaves_is_killed_with_the_ranks(
    platform: AgentConfig, job: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = "subprocess.Popen(['sleep', '60'], start_new_session=True)"
    (tmp_path / "leaves.py").write_text(
        f"import subprocess\ndef start(args, fds):\n    return {{'pid': {starts}.pid}}\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    agent = StandbyAgent(to_json(platform))
    await agent.prewarm()
    assert await agent.adopt(to_json(job))
    zygote = (await agent.start_zygote()).pid
    assert agent._host is not None
    left = (await agent._host.acquire_zygote().run_task("leaves:start", {}))["pid"]
    os.kill(zygote, signal.SIGKILL)
    assert (await agent.kill_ranks(1, for_restore=False)).stuck == ()
    assert procfs.is_zombie(left)
    await agent.shutdown()


async def test_the_next_standby_has_a_fork_of_the_same_template(
    standby: StandbyAgent, platform: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # the variable would make another environment
    (template,) = templates()
    after = StandbyAgent(to_json(platform))
    await after.prewarm()
    assert templates() == [template] and len(zygotes()) == 2
    await after.shutdown()


async def test_a_dead_zygote_of_a_job_is_replaced_by_a_fork_of_the_template(
    standby: StandbyAgent, job: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (template,) = templates()
    assert await standby.adopt(to_json(job))
    before = (await standby.start_zygote()).pid
    kill_tree.kill([before])
    while not procfs.is_zombie(before):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    after = (await standby.start_zygote()).pid
    assert after != before and after in procfs.children(template)


async def test_without_a_template_a_standby_starts_its_own_zygote(
    platform: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZygoteLink, "fork_from", lambda *_: None)
    agent = StandbyAgent(to_json(platform))
    await agent.prewarm()
    (zygote,) = zygotes()
    assert zygote in procfs.children(os.getpid())
    await agent.shutdown()


async def test_a_failed_preload_is_an_error_of_the_job(standby: StandbyAgent, job: AgentConfig) -> None:
    assert await standby.adopt(to_json(replace(job, preload=("no_such_module",))))
    with pytest.raises(AgentFailedError) as failed:
        await standby.start_zygote()
    assert failed.value.failure.kind is AgentErrorKind.PRELOAD and failed.value.failure.node_name == "n0"


async def test_the_code_of_the_job_comes_first_on_the_path_of_a_standby_zygote(
    standby: StandbyAgent, job: AgentConfig, tmp_path: Path
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
    assert await standby.adopt(to_json(mine))
    ready = await standby.start_zygote()
    assert ready.pid == before
    assert os.readlink(f"/proc/{before}/cwd").endswith("/code")


async def test_missing_code_is_an_error_of_the_job(standby: StandbyAgent, job: AgentConfig, tmp_path: Path) -> None:
    assert await standby.adopt(to_json(replace(job, code=f"sha256:{'0' * 64}", blob_uri=tmp_path.as_uri())))
    with pytest.raises(AgentFailedError) as failed:
        await standby.start_zygote()
    assert failed.value.failure.kind is AgentErrorKind.CODE


async def test_a_job_reuses_the_checks_of_its_standby(
    platform: AgentConfig, job: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = StandbyAgent(to_json(replace(platform, preload=("torch",), preflight=True)))
    await agent.prewarm()
    assert await agent.describe_faults() == ""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tempfile, "tempdir", str(tmp_path / "unmounted"))
        await agent.prewarm()
        assert (await agent.describe_faults()).startswith(f"cannot write 64 MiB to {tmp_path}/unmounted")
    assert await agent.adopt(to_json(replace(job, preload=("torch",))))
    assert await agent.describe_faults() == "", "an adopted agent reports no standby findings"
    await agent.start_zygote()
    monkeypatch.setattr(preflight, "TARGET", "nowhere:check")
    needs = PreflightRequest("cpu", (), 0, time.time())
    found = await agent.run_preflight(needs)
    assert (found.failed, found.notes) == ((), ())
    too_much = await agent.run_preflight(replace(needs, memory_bytes=1 << 60))
    assert [what for what, _ in too_much.failed] == ["memory"]
    await agent.kill_ranks(1, for_restore=False)
    assert (await agent.run_preflight(replace(needs, memory_bytes=1 << 60))).failed == (), (
        "the ranks of the job are part of the memory in use"
    )
    await agent.shutdown()


async def test_a_node_is_clear_of_a_job_once_its_last_process_is_dead(standby: StandbyAgent) -> None:
    job_id = f"job_{uuid.uuid4().hex[:16]}"
    environment = {**os.environ, orphans.VARIABLE: str(scratch_dir.path_of(job_id, "node0"))}
    assert await standby.is_clear(job_id)
    left = await asyncio.create_subprocess_exec("sleep", "60", env=environment)
    try:
        assert not await standby.is_clear(job_id)
        left.send_signal(signal.SIGSTOP)
        assert not await standby.is_clear(job_id), "a stopped process may continue"
        assert await standby.is_clear("job_another")
    finally:
        left.kill()
        await left.wait()
    assert await standby.is_clear(job_id)


async def test_an_adopted_standby_reports_no_clear_node(standby: StandbyAgent, job: AgentConfig) -> None:
    assert await standby.adopt(to_json(job))
    assert not await standby.is_clear("job_another")


async def test_an_agent_gets_secrets_and_hides_them(standby: StandbyAgent, job: AgentConfig) -> None:
    config = replace(job, secrets={"TOKEN": SecretSource(from_project="hf-token")})
    assert await standby.adopt(to_json(config))
    assert (await standby.status()).secrets_version == ""
    with pytest.raises(AgentFailedError, match="has not received the value of 'hf-token'") as refused:
        await standby.start_zygote()
    assert refused.value.failure.kind is AgentErrorKind.SECRET
    await standby.receive_secrets("v1", {"hf-token": "hunter2-4f1d09c6"})
    assert (await standby.status()).secrets_version == "v1"
    host = standby._host
    assert host is not None and host.redactor.hide("key hunter2-4f1d09c6!") == "key ***!"
    await standby.receive_secrets("v2", {"hf-token": "another-7a6b"})
    assert host.redactor.hide("hunter2-4f1d09c6 another-7a6b") == "*** ***", "logs have the former value, too"
    assert host.config.project_secrets == {"hf-token": "another-7a6b"}
