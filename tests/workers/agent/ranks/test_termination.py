"""SIGTERM to the ranks of a node: real zygotes, processes and signals. The ranks run a program without torch."""

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.generation_fence import StaleGeneration
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.ranks import rank_group
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import Done, Exited, Failed, FaultDue, Join, Message, Note, Restore, from_json
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.os import procfs

RANKS = """
import os, signal, socket, subprocess, sys, time
from pathlib import Path
from regroup.workers.contract.messages import Done, Failed, decode, encode
from regroup.workers.contract.rank_error import ErrorClass, RankError

def main(fds):
    channel = socket.socket(fileno=fds[0])
    join = decode(channel.recv(1 << 20))
    folder, how = Path(os.environ["FOLDER"]), os.environ["HOW"]

    def save(number, frame):
        with (folder / f"saved-{join.rank}").open("a") as file:
            file.write(f"{number} ")
        if how == "exits with 143":
            os._exit(143)
        if how == "fails":
            error = RankError(ErrorClass.USER, "ValueError", "no", "", 1, "forward", 1.0)
            channel.send(encode(Failed(join.rank, join.generation, error)))
            os._exit(1)
        if how.startswith("exits"):
            if how == "exits slowly":
                time.sleep(0.3)
                (folder / f"done-{join.rank}").touch()
            channel.send(encode(Done(join.rank, join.generation, 1, stopped=False)))
            os._exit(0)

    if how != "dies":
        signal.signal(signal.SIGTERM, save)
    helper = "import signal, sys, time; signal.signal(15, lambda *_: open(sys.argv[1], 'w')); time.sleep(99)"
    subprocess.Popen([sys.executable, "-c", helper, str(folder / f"helper-{join.rank}")])
    (folder / f"up-{join.rank}").write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)
"""


class Node:
    """A host with two ranks, and the messages that it emitted."""

    def __init__(self, folder: Path, how: str, **options: Any) -> None:
        self.folder, self.messages = folder, list[Message]()
        (folder / "ranks_without_torch.py").write_text(RANKS)
        path = os.pathsep.join([str(folder), *filter(None, sys.path)])
        config = AgentConfig(
            job_id=uuid.uuid4().hex[:16], job_name="t", node_id="n", node_name="n", address="127.0.0.1",
            supervisor="s", storage_uri=f"file://{folder}/s", datasets_uri=f"file://{folder}/d", log_dir=str(folder),
            env={"PYTHONPATH": path, "FOLDER": str(folder), "HOW": how}, preload=("ranks_without_torch",), **options,
        )  # fmt: skip
        self.host = JobHost(config, self._authorize_fault, self._receive)

    async def start(self) -> None:
        await self.host.prepare()
        joins = [
            Join("j", 1, rank, 2, rank, 2, 0, 1, {}, "cpu", "h", 1, Restore("none"), "script:x", RankConfig())
            for rank in range(2)
        ]
        await self.host.form_ranks(joins, [0, 1], [])
        await self.until(lambda: len(self.written("up")) == 2)

    def written(self, name: str) -> list[str]:
        """Read what the ranks wrote to their files of this name. A file without content is being written."""
        return [text for path in sorted(self.folder.glob(f"{name}-*")) if (text := path.read_text())]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]

    async def _authorize_fault(self, due: FaultDue) -> bool:
        return True

    def _receive(self) -> None:
        batch = self.host.outbox.next_batch()
        self.messages += [from_json(item) for _, item in batch]
        if batch:
            self.host.outbox.acknowledge("run", batch[-1][0], batch[-1][0])


@pytest.fixture
async def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(rank_group, "RANK_TARGET", "ranks_without_torch:main")
    how, config = request.param if isinstance(request.param, tuple) else (request.param, {})
    made = Node(tmp_path, how, **config)
    await made.start()
    yield made
    await made.host.close()


@pytest.mark.parametrize(
    ("node", "code"),
    [("dies", -15), ("exits", 0), ("exits with 143", 143), ("fails", 1)],
    indirect=["node"],
)
async def test_ranks_end_by_themselves_and_report_nothing_but_that(node: Node, code: int) -> None:
    await node.host.terminate_ranks(1)
    await node.until(lambda: len(node.of(Exited)) == 2)
    assert {(exited.code, exited.terminated) for exited in node.of(Exited)} == {(code, True)}
    assert node.of(Failed) == [] and {done.stopped for done in node.of(Done)} <= {True}
    assert node.written("saved") == ([] if code == -15 else ["15 ", "15 "])
    assert await node.host.kill_ranks(1) == []
    assert list(node.folder.glob("helper-*")) == [], "only the rank's own process gets the signal"


@pytest.mark.parametrize("node", ["exits"], indirect=True)
async def test_a_stopped_rank_continues_and_saves_too(node: Node) -> None:
    os.kill(int(node.written("up")[1]), signal.SIGSTOP)
    await node.host.terminate_ranks(1)
    await node.until(lambda: len(node.of(Exited)) == 2)
    assert node.written("saved") == ["15 ", "15 "]


@pytest.mark.parametrize("node", ["ignores"], indirect=True)
async def test_ranks_get_one_sigterm_and_are_then_killed(node: Node) -> None:
    await node.host.terminate_ranks(1)
    await node.until(lambda: len(node.written("saved")) == 2)
    await node.host.terminate_ranks(1)  # as a supervisor does that has restarted
    assert node.host.is_terminating
    began_s = time.monotonic()
    assert await node.host.kill_ranks(1) == []
    assert time.monotonic() - began_s < 5
    assert node.written("saved") == ["15 ", "15 "]
    assert {(exited.code, exited.terminated) for exited in node.of(Exited)} == {(-9, True)}
    assert not node.host.is_terminating


@pytest.mark.parametrize("node", ["exits"], indirect=True)
async def test_an_older_generation_is_refused(node: Node) -> None:
    await node.host.kill_ranks(2)
    with pytest.raises(StaleGeneration):
        await node.host.terminate_ranks(1)


ORPHANED = {"orphan_s": 0.1}


async def orphaned(node: Node) -> None:
    """Let the lease of the ranks end."""
    node.host.renew_lease(procfs.boottime_s())
    await node.until(lambda: len(node.of(Exited)) == 2)


@pytest.mark.parametrize("node", [("exits slowly", ORPHANED), ("fails", ORPHANED)], indirect=True, ids=str)
async def test_ranks_without_a_supervisor_save_and_are_not_complete(node: Node) -> None:
    await orphaned(node)
    assert node.written("saved") == ["15 ", "15 "]
    assert node.of(Done) == [] and node.of(Failed) == [], "the job is neither complete nor failed"
    assert {(exited.code == 0, exited.terminated) for exited in node.of(Exited)} == {(False, False)}
    (note,) = [note for note in node.of(Note) if note.kind == "lease_ended"]
    assert note.data["message"] == "no supervisor responded for 0 s: the ranks got SIGTERM"


@pytest.mark.parametrize("node", [("exits slowly", ORPHANED)], indirect=True, ids=str)
async def test_ranks_without_a_supervisor_get_the_time_that_they_need(node: Node) -> None:
    await orphaned(node)
    assert len(list(node.folder.glob("done-*"))) == 2


@pytest.mark.parametrize("node", [("ignores", {**ORPHANED, "termination_grace_s": 0.3})], indirect=True, ids=str)
async def test_ranks_without_a_supervisor_are_killed_after_the_grace(node: Node) -> None:
    await orphaned(node)
    assert node.written("saved") == ["15 ", "15 "]
    assert {exited.code for exited in node.of(Exited)} == {-9}


@pytest.mark.parametrize("node", [("ignores", {**ORPHANED, "termination_grace_s": 60.0})], indirect=True, ids=str)
async def test_a_supervisor_that_returns_ends_the_ranks_that_save(node: Node) -> None:
    node.host.renew_lease(procfs.boottime_s())
    await node.until(lambda: len(node.written("saved")) == 2)
    node.host.renew_lease(procfs.boottime_s())  # the ranks have got SIGTERM, so their lease stays ended
    assert await node.host.kill_ranks(1) == []
    assert {exited.code for exited in node.of(Exited)} == {-9}
