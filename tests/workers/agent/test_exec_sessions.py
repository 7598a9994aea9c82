"""Commands next to the ranks: real processes that write, fork and detach, and are killed with their descendants."""

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
    """A node that formed ranks 2 and 3 of a script."""

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
        host.rank_places[2 + local] = (join, {"REGROUP_DEVICE_INDEX": str(local)})
    yield host
    await host.close()


async def begin(host: JobHost, *command: str, rank: int = 3, timeout_s: float | None = None, stdin: bytes = b"") -> str:
    key = uuid.uuid4().hex
    request = CommandRequest(key, rank, command, timeout_s, stdin)
    await host.exec_sessions.start(host.acquire_zygote(), request, host.rank_places.get(rank))
    return key


async def read(host: JobHost, key: str) -> tuple[dict[str, bytes], CommandExit]:
    """Return all output of a command, by stream, and its exit."""
    found = {"stdout": b"", "stderr": b""}
    while True:
        reply = await host.exec_sessions.read(key, 64 * 1024, 10.0)
        for stream, data in reply.pieces:
            found[stream] += data
        if reply.ended:
            return found, reply.ended


async def run(host: JobHost, *command: str, **options: Any) -> tuple[dict[str, bytes], CommandExit]:
    return await asyncio.wait_for(read(host, await begin(host, *command, **options)), 30)


async def wait_until_gone(title: str) -> None:
    """Wait until no process has this name."""
    deadline = time.monotonic() + 10
    while called(title):
        assert time.monotonic() < deadline, f"{title} is still alive"
        await asyncio.sleep(0.02)


async def wait_until_started(host: JobHost, key: str) -> None:
    output = b""
    while output != b"started\n":
        reply = await host.exec_sessions.read(key, 100, 10.0)
        output += b"".join(data for _, data in reply.pieces)
        assert reply.ended is None


async def test_a_command_runs_in_the_environment_of_the_rank_and_returns_its_exit(
    host: JobHost, tmp_path: Path
) -> None:
    program = "import os, sys; print(sys.executable, os.getcwd(), *(os.environ[name] for name in sys.argv[1:]));"
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "REGROUP_GENERATION", "REGROUP_DEVICE_INDEX", "MINE")
    found, ended = await run(host, "python", "-c", program + "sys.stderr.write('bad'); sys.exit(3)", *names)
    executable, folder, *values = found["stdout"].decode().split()
    assert Path(executable).parent == Path(host.config.interpreter or os.sys.executable).parent  # type: ignore[attr-defined]
    assert folder == str(tmp_path) and values == ["3", "1", "4", "7", "1", "1"]
    assert found["stderr"] == b"bad"
    assert (ended.code, ended.why, ended.stuck) == (3, "exited", ())
    _, ended = await run(host, "sh", "-c", "kill -TERM $$")
    assert ended.code == -15


async def test_input_and_output_are_unchanged_bytes(host: JobHost) -> None:
    data = bytes(range(256)) * 1000
    found, ended = await run(host, "cat", stdin=data)
    assert found["stdout"] == data and ended.code == 0
    assert (await run(host, "cat"))[0]["stdout"] == b""


async def test_a_command_that_cannot_run_has_the_exit_code_of_a_shell(host: JobHost, tmp_path: Path) -> None:
    found, ended = await run(host, "no-such-command")
    assert ended.code == 127 and b"cannot run 'no-such-command' on this node: No such file" in found["stderr"]
    assert (await run(host, str(tmp_path)))[1].code == 126
    with pytest.raises(ExecRefused, match="rank 0"):
        await begin(host, "true", rank=0)
    with pytest.raises(ExecRefused, match="no command"):
        await host.exec_sessions.read("unknown", 1, 0)


@pytest.mark.parametrize("how", ["exit", "timeout", "end", "close"])
async def test_all_processes_of_a_command_end_with_it_even_if_detached(host: JobHost, how: str) -> None:
    title = f"left-{uuid.uuid4().hex}"
    stay = "leave" if how == "exit" else "stay"
    key = await begin(host, "python", "-c", LEAKS, title, stay, timeout_s=2.0 if how == "timeout" else None)
    await wait_until_started(host, key)
    if how == "end":
        host.exec_sessions.kill(key)
    elif how == "close":
        assert len(called(title)) == 2
        await host.exec_sessions.close()
        assert not called(title)
    else:
        _, ended = await asyncio.wait_for(read(host, key), 20)
        assert (ended.code, ended.why) == ((0, "exited") if how == "exit" else (124, "timeout"))
        assert not called(title)
    await wait_until_gone(title)


async def test_a_kill_of_ranks_spares_commands_and_their_children(host: JobHost) -> None:
    forks = "i=0; while [ $i -lt 400 ]; do (exec /bin/true) || echo lost; i=$((i+1)); done; echo done"
    key = await begin(host, "sh", "-c", forks)
    reading = asyncio.ensure_future(read(host, key))
    kills = 0
    while not reading.done():
        began = time.monotonic()
        assert await host.kill_ranks(1) == []
        assert time.monotonic() - began < 1.0
        kills += 1
    found, ended = await reading
    assert found["stdout"] == b"done\n" and ended.code == 0
    assert kills > 10


async def test_a_command_blocks_while_no_client_reads_its_output(host: JobHost) -> None:
    size = 100_000_000
    key = await begin(host, "head", "-c", str(size), "/dev/zero")
    (command,) = host.exec_sessions._commands.values()
    deadline = time.monotonic() + 10
    while command._size < exec_sessions.BUFFER_BYTES:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # time in which it must not read more
    assert command._size < exec_sessions.BUFFER_BYTES + 64 * 1024
    total = 0
    while not (reply := await host.exec_sessions.read(key, 64 * 1024, 10.0)).ended:
        total += sum(len(data) for _, data in reply.pieces)
        assert command._size < exec_sessions.BUFFER_BYTES + 64 * 1024
    assert total + sum(len(data) for _, data in reply.pieces) == size and reply.ended.code == 0


async def test_a_command_without_a_reader_is_killed(host: JobHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_sessions, "UNREAD_S", 0.3)
    title = f"left-{uuid.uuid4().hex}"
    key = await begin(host, "python", "-c", LEAKS, title, "stay")
    await wait_until_started(host, key)
    await wait_until_gone(title)


async def test_a_command_whose_zygote_died_is_killed_with_the_ranks(host: JobHost) -> None:
    title = f"left-{uuid.uuid4().hex}"
    key = await begin(host, "python", "-c", LEAKS, title, "stay")
    await wait_until_started(host, key)
    zygote = host.acquire_zygote().process
    zygote.kill()
    zygote.wait()  # the host notices the death at its next request
    assert await host.kill_ranks(1) == []
    assert not called(title)
    _, ended = await asyncio.wait_for(read(host, key), 10)
    assert ended.why == "lost"
    assert (await run(host, "true"))[1].code == 0, "runs on the next zygote"


async def test_abandoned_commands_do_not_count_toward_the_maximum(
    host: JobHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(exec_sessions.MAX_COMMANDS):
        await begin(host, "true")
    monkeypatch.setattr(exec_sessions, "UNREAD_S", 0.1)
    watchers = [command._watcher for command in host.exec_sessions._commands.values()]
    await asyncio.wait_for(asyncio.gather(*watchers), 10)
    await asyncio.sleep(0.2)  # longer than UNREAD_S
    assert (await run(host, "echo", "a"))[0]["stdout"] == b"a\n"


async def test_a_node_limits_the_number_of_concurrent_commands(host: JobHost) -> None:
    keys = [await begin(host, "sleep", "100") for _ in range(exec_sessions.MAX_COMMANDS)]
    with pytest.raises(ExecRefused, match="8 commands"):
        await begin(host, "true")
    host.exec_sessions.kill(keys[0])
    assert (await run(host, "true"))[1].code == 0
