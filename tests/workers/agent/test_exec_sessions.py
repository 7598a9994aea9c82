"""Commands beside the ranks: real processes that write, fork, detach and are ended with all they started."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent import exec_sessions
from regroup.workers.agent.exec_sessions import ExecRefused
from regroup.workers.agent.job_host import JobHost
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CommandExit, CommandRequest
from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from tests.support.servers.regroup_server import called

LEAKS = """
import subprocess, sys, time
for detach in (False, True):
    subprocess.Popen([sys.argv[1], "-c", "import time; time.sleep(1000)"], executable=sys.executable,
                     start_new_session=detach)
print("started", flush=True)
if sys.argv[2] == "stay":
    time.sleep(1000)
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[JobHost]:
    """A node on which ranks 2 and 3 of a script were formed."""

    async def never(due: Any) -> bool:
        return False

    config = AgentConfig(
        job_id=f"job_{uuid.uuid4().hex}", job_name="t", node_id="n", node_name="n", address="127.0.0.1", supervisor="s",
        storage_uri=f"file://{tmp_path}/storage", datasets_uri=f"file://{tmp_path}/datasets", log_dir=str(tmp_path),
        env={"MINE": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    host = JobHost(config, never, lambda: None)
    await host.prepare()
    for local in range(2):
        join = Join(
            config.job_id, 7, 2 + local, 4, local, 2, 1, 2, {"dp_shard": 4}, "cpu", "127.0.0.1", 1, Restore("none"),
            f"script:{tmp_path}/train.py", RankConfig(),
        )  # fmt: skip
        host.places[2 + local] = (join, {"REGROUP_DEVICE_INDEX": str(local)})
    yield host
    await host.close()


async def begin(host: JobHost, *command: str, rank: int = 3, timeout_s: float | None = None, stdin: bytes = b"") -> str:
    key = uuid.uuid4().hex
    request = CommandRequest(key, rank, command, timeout_s, stdin)
    await host.executions.start(host.zygote(), request, host.places.get(rank))
    return key


async def read(host: JobHost, key: str) -> tuple[dict[str, bytes], CommandExit]:
    """All that a command writes, by stream, and how it ended."""
    found = {"stdout": b"", "stderr": b""}
    while True:
        reply = await host.executions.read(key, 64 * 1024, 10.0)
        for stream, data in reply.pieces:
            found[stream] += data
        if reply.ended:
            return found, reply.ended


async def run(host: JobHost, *command: str, **options: Any) -> tuple[dict[str, bytes], CommandExit]:
    return await asyncio.wait_for(read(host, await begin(host, *command, **options)), 30)


async def gone(title: str) -> None:
    """Wait until no process has this name."""
    deadline = time.monotonic() + 10
    while called(title):
        assert time.monotonic() < deadline, f"{title} lives on"
        await asyncio.sleep(0.02)


async def started(host: JobHost, key: str) -> None:
    heard = b""
    while heard != b"started\n":
        reply = await host.executions.read(key, 100, 10.0)
        heard += b"".join(data for _, data in reply.pieces)
        assert reply.ended is None


async def test_a_command_runs_where_the_rank_runs_and_says_how_it_ended(host: JobHost, tmp_path: Path) -> None:
    told = "import os, sys; print(sys.executable, os.getcwd(), *(os.environ[name] for name in sys.argv[1:]));"
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "REGROUP_GENERATION", "REGROUP_DEVICE_INDEX", "MINE")
    found, ended = await run(host, "python", "-c", told + "sys.stderr.write('bad'); sys.exit(3)", *names)
    executable, folder, *values = found["stdout"].decode().split()
    assert Path(executable).parent == Path(host.config.interpreter or os.sys.executable).parent  # type: ignore[attr-defined]
    assert folder == str(tmp_path) and values == ["3", "1", "4", "7", "1", "1"]
    assert found["stderr"] == b"bad"
    assert (ended.code, ended.why, ended.stuck) == (3, "exited", ())
    _, ended = await run(host, "sh", "-c", "kill -TERM $$")
    assert ended.code == -15


async def test_bytes_go_in_and_come_out_as_they_are(host: JobHost) -> None:
    data = bytes(range(256)) * 1000
    found, ended = await run(host, "cat", stdin=data)
    assert found["stdout"] == data and ended.code == 0
    assert (await run(host, "cat"))[0]["stdout"] == b""


async def test_what_cannot_run_is_told_as_by_a_shell(host: JobHost, tmp_path: Path) -> None:
    found, ended = await run(host, "no-such-command")
    assert ended.code == 127 and b"cannot run 'no-such-command' on this node: No such file" in found["stderr"]
    assert (await run(host, str(tmp_path)))[1].code == 126
    with pytest.raises(ExecRefused, match="rank 0"):
        await begin(host, "true", rank=0)
    with pytest.raises(ExecRefused, match="no command"):
        await host.executions.read("unknown", 1, 0)


@pytest.mark.parametrize("how", ["exit", "timeout", "end", "close"])
async def test_all_it_started_ends_with_it_however_it_detached(host: JobHost, how: str) -> None:
    title = f"left-{uuid.uuid4().hex}"
    stay = "leave" if how == "exit" else "stay"
    key = await begin(host, "python", "-c", LEAKS, title, stay, timeout_s=2.0 if how == "timeout" else None)
    await started(host, key)
    if how == "end":
        host.executions.end(key)
    elif how == "close":
        assert len(called(title)) == 2
        await host.executions.close()
        assert not called(title)
    else:
        _, ended = await asyncio.wait_for(read(host, key), 20)
        assert (ended.code, ended.why) == ((0, "exited") if how == "exit" else (124, "timeout"))
        assert not called(title)
    await gone(title)


async def test_a_kill_of_ranks_meets_neither_it_nor_what_it_forks(host: JobHost) -> None:
    forks = "i=0; while [ $i -lt 400 ]; do (exec /bin/true) || echo lost; i=$((i+1)); done; echo done"
    key = await begin(host, "sh", "-c", forks)
    reading = asyncio.ensure_future(read(host, key))
    kills = 0
    while not reading.done():
        began = time.monotonic()
        assert await host.end(1) == []
        assert time.monotonic() - began < 1.0
        kills += 1
    found, ended = await reading
    assert found["stdout"] == b"done\n" and ended.code == 0
    assert kills > 10


async def test_output_that_nobody_reads_waits_in_the_command(host: JobHost) -> None:
    size = 100_000_000
    key = await begin(host, "head", "-c", str(size), "/dev/zero")
    (execution,) = host.executions._known.values()
    deadline = time.monotonic() + 10
    while execution._size < exec_sessions.BUFFER_BYTES:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # what must not happen: it reads on
    assert execution._size < exec_sessions.BUFFER_BYTES + 64 * 1024
    total = 0
    while not (reply := await host.executions.read(key, 64 * 1024, 10.0)).ended:
        total += sum(len(data) for _, data in reply.pieces)
        assert execution._size < exec_sessions.BUFFER_BYTES + 64 * 1024
    assert total + sum(len(data) for _, data in reply.pieces) == size and reply.ended.code == 0


async def test_without_a_reader_it_ends(host: JobHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_sessions, "UNREAD_S", 0.3)
    title = f"left-{uuid.uuid4().hex}"
    key = await begin(host, "python", "-c", LEAKS, title, "stay")
    await started(host, key)
    await gone(title)


async def test_what_its_zygote_leaves_is_ended_with_the_ranks(host: JobHost) -> None:
    title = f"left-{uuid.uuid4().hex}"
    key = await begin(host, "python", "-c", LEAKS, title, "stay")
    await started(host, key)
    zygote = host.zygote().process
    zygote.kill()
    zygote.wait()  # the host finds out when it speaks to it, not by hearing of it
    assert await host.end(1) == []
    assert not called(title)
    _, ended = await asyncio.wait_for(read(host, key), 10)
    assert ended.why == "lost"
    assert (await run(host, "true"))[1].code == 0, "on the next zygote"


async def test_commands_that_were_left_take_nobodys_place(host: JobHost, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(exec_sessions.MOST):
        await begin(host, "true")
    monkeypatch.setattr(exec_sessions, "UNREAD_S", 0.1)
    watching = [execution._watching for execution in host.executions._known.values()]
    await asyncio.wait_for(asyncio.gather(*watching), 10)
    await asyncio.sleep(0.2)  # so long nobody read
    assert (await run(host, "echo", "a"))[0]["stdout"] == b"a\n"


async def test_no_more_run_at_once_than_a_node_bears(host: JobHost) -> None:
    keys = [await begin(host, "sleep", "100") for _ in range(exec_sessions.MOST)]
    with pytest.raises(ExecRefused, match="8 commands"):
        await begin(host, "true")
    host.executions.end(keys[0])
    assert (await run(host, "true"))[1].code == 0
