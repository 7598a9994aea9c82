"""The job host of a node without Ray: real zygotes, ranks and signals, and an unmodified `env://` script."""

import asyncio
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.generation_fence import StaleGeneration
from regroup.workers.agent.job_host import STORE_RANK, ZYGOTE_RANK, JobHost
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan
from regroup.workers.contract.messages import Done, Exited, Failed, FaultDue, Join, Message, Note, Restore, from_json
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.os.procfs import is_zombie
from regroup.workers.zygote.client import TaskDied, TaskFailed, ZygoteRefused
from tests.support.machines.small_disk import needs_root, small_disk

JOB = uuid.uuid4().hex[:16]
"""Job id of this test run. Folders and processes contain it, so parallel runs on a machine do not interfere."""
SCRIPT = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.full((3,), float(os.environ["RANK"]))
dist.all_reduce(value)
print("sum", value.tolist(), "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
open(os.environ["MARK"] + os.environ["RANK"], "w").write(str(os.getpid()))
if os.environ["HOLD"] == "1":
    import subprocess, time
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    time.sleep(1000)
"""


class Node:
    """A host and the messages that it emitted."""

    def __init__(self, config: AgentConfig) -> None:
        self.messages: list[Message] = []
        self.host = JobHost(config, self._authorize_fault, self._receive)

    async def _authorize_fault(self, due: FaultDue) -> bool:
        return True

    def _receive(self) -> None:
        batch = self.host.outbox.next_batch()
        self.messages += [from_json(item) for _, item in batch]
        if batch:
            self.host.outbox.acknowledge("run", batch[-1][0], batch[-1][0])

    async def store_pid(self) -> int:
        """Return the pid of the store process, once it is forked."""
        deadline = time.monotonic() + 10
        while (pid := self.host.pids().store) is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert pid is not None
        return pid

    async def wait_for(self, kind: type[Any], count: int = 1, within_s: float = 30.0) -> list[Any]:
        """Wait for `count` messages of a kind."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            found = [message for message in self.messages if isinstance(message, kind)]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.005)
        raise AssertionError(f"no {count} × {kind.__name__} in {within_s} s; received {self.messages}")


def config(folder: Path, node: str, **fields: Any) -> AgentConfig:
    """Return the configuration of a node of a job whose files are all in `folder`."""
    return AgentConfig(
        job_id=JOB,
        job_name="t",
        node_id=node,
        node_name=node,
        address="127.0.0.1",
        supervisor="s",
        storage_uri=f"file://{folder}/storage",
        datasets_uri=f"file://{folder}/datasets",
        **fields,
    )


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[Node]]:
    """Two nodes of one job on this machine."""
    both: list[Node] = []
    for number in range(2):
        logs = tmp_path / f"logs{number}"
        logs.mkdir()
        env = {"MARK": str(tmp_path / "mark"), "HOLD": "0"}
        preload = ("torch", "torch.distributed", "regroup.workers.rank.main")
        both.append(Node(config(tmp_path, f"node{number}", log_dir=str(logs), env=env, preload=preload)))
    yield both
    await asyncio.gather(*(node.host.close() for node in both))


def joins(generation: int, script: Path, store: tuple[str, int], node: int) -> list[Join]:
    """Return the joins of two ranks on one of two nodes."""
    return [
        Join(
            "job",
            generation,
            2 * node + local,
            4,
            local,
            2,
            node,
            2,
            {"dp_shard": 4},
            "cpu",
            *store,
            Restore("none"),
            f"script:{script}",
            RankConfig(),
        )
        for local in range(2)
    ]


async def form(nodes: list[Node], generation: int, script: Path) -> None:
    """Form a generation of four ranks."""
    store = nodes[0].host.start_store(generation)
    await asyncio.gather(
        *(
            node.host.form_ranks(joins(generation, script, store, number), [0, 1], [])
            for number, node in enumerate(nodes)
        )
    )


def is_reaped(pid: int) -> bool:
    """Return True if a process no longer exists, not even as a zombie."""
    return not Path(f"/proc/{pid}").exists()


async def test_an_unmodified_script_runs_through_generations(nodes: list[Node], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    await asyncio.gather(*(node.host.prepare() for node in nodes))
    for generation in (1, 2):
        await form(nodes, generation, script)
        for node in nodes:
            done = await node.wait_for(Done, 2 * generation)
            assert {message.generation for message in done} == set(range(1, generation + 1))
        proofs = await asyncio.gather(*(node.host.kill_ranks(generation) for node in nodes))
        assert proofs == [[], []]
    out = nodes[1].host.log_files.rank(2, 3, "stdout").read_text()
    assert out == "sum [6.0, 6.0, 6.0] restart 1\n"


async def test_a_script_that_calls_os_exit_is_done_if_its_code_is_0(nodes: list[Node], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os\nos._exit(3 if os.environ['RANK'] == '3' else 0)")
    await asyncio.gather(*(node.host.prepare() for node in nodes))
    await form(nodes, 1, script)
    for node, done in zip(nodes, ([0, 1], [2]), strict=True):
        exits = await node.wait_for(Exited, 2)
        assert sorted(message.rank for message in node.messages if isinstance(message, Done)) == done
        assert {exit.rank: exit.code for exit in exits if exit.code} == ({} if len(done) == 2 else {3: 3})


async def test_a_killed_rank_is_reported_and_all_descendants_die(nodes: list[Node], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('os.environ["HOLD"] == "1"', "True"))
    await asyncio.gather(*(node.host.prepare() for node in nodes))
    await form(nodes, 1, script)
    marks = [tmp_path / f"mark{rank}" for rank in range(4)]
    end = time.monotonic() + 30
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert time.monotonic() < end, nodes[0].host.log_files.rank(1, 0, "stderr").read_text()
        await asyncio.sleep(0.01)
    while len(helpers := [pid for node in nodes for pid in sleepers(node.host.pids().zygote)]) < 4:
        assert time.monotonic() < end, "every rank starts a helper"
        await asyncio.sleep(0.01)
    ranks = [int(mark.read_text()) for mark in marks]
    store_pid = nodes[0].host.pids().store
    killed = time.time()
    os.kill(ranks[1], signal.SIGKILL)
    (exited,) = await nodes[0].wait_for(Exited)
    assert (exited.rank, exited.code) == (1, -signal.SIGKILL)
    assert time.time() - killed < 0.5
    await asyncio.gather(*(node.host.kill_ranks(1) for node in nodes))
    assert not [pid for pid in (*ranks, *helpers, store_pid) if not is_zombie(pid)]
    end = time.monotonic() + 10
    while left := [pid for pid in (*ranks, *helpers, store_pid) if not is_reaped(pid)]:
        assert time.monotonic() < end, f"dead but not reaped: {left}"
        await asyncio.sleep(0.05)
    with pytest.raises(StaleGeneration):
        nodes[0].host.start_store(0)


async def test_the_rank_that_failed_is_reported_before_those_killed_for_it(nodes: list[Node], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('os.environ["HOLD"] == "1"', "True"))
    await asyncio.gather(*(node.host.prepare() for node in nodes))
    await form(nodes, 1, script)
    marks, end = [tmp_path / f"mark{rank}" for rank in range(4)], time.monotonic() + 30
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert time.monotonic() < end, nodes[0].host.log_files.rank(1, 0, "stderr").read_text()
        await asyncio.sleep(0.01)
    zygote, victim = nodes[0].host.pids().zygote, int(marks[1].read_text())
    os.kill(zygote, signal.SIGSTOP)  # as on a busy machine: the zygote notices the death and the kill request at once
    os.kill(victim, signal.SIGKILL)
    while not is_zombie(victim):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    ending = asyncio.ensure_future(nodes[0].host.kill_ranks(1))
    await asyncio.sleep(0)
    os.kill(zygote, signal.SIGCONT)
    await ending
    exits = await nodes[0].wait_for(Exited, 2)
    assert min(exits, key=lambda exited: exited.time_s).rank == 1, exits
    assert STORE_RANK not in [exited.rank for exited in exits]  # on a node without the cause, the store may die first


def sleepers(root: int) -> list[int]:
    """Return the processes called sleep below `root`."""
    from regroup.workers.os.procfs import descendants_by_scan

    return [pid for pid in descendants_by_scan(root) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A child that this process had before any host. Hosts must not touch it."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


async def test_the_death_of_the_store_and_of_the_zygote_is_reported(
    bystander: subprocess.Popen[bytes], nodes: list[Node], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('os.environ["HOLD"] == "1"', "True"))
    node = nodes[0]
    await node.host.prepare()
    node.host.start_store(1)
    os.kill(await node.store_pid(), signal.SIGKILL)
    (exited,) = await node.wait_for(Exited)
    assert exited.rank == STORE_RANK
    zygote = node.host.pids().zygote
    os.kill(zygote, signal.SIGKILL)
    _, exited = await node.wait_for(Exited, 2)
    assert exited.rank == ZYGOTE_RANK
    await node.host.kill_ranks(1)
    await node.host.prepare()
    assert node.host.pids().zygote != zygote
    assert bystander.poll() is None


@asynccontextmanager
async def lone_node(folder: Path, module: str, source: str) -> AsyncGenerator[Node]:
    """Yield a node whose zygote will import `source`; the node is not prepared yet."""
    (folder / f"{module}.py").write_text(source)
    env = {"PYTHONPATH": str(folder), "MARK": str(folder / "mark"), "HOLD": "0"}
    node = Node(config(folder, "n", log_dir=str(folder), env=env, preload=(module,)))
    try:
        yield node
    finally:
        await node.host.close()


@pytest.fixture
def small_log_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of a megabyte."""
    with small_disk(tmp_path / "logs", "1m") as folder:
        yield folder


@needs_root
async def test_a_rank_whose_output_fills_the_disk_fails_with_the_reason(small_log_disk: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("while True: print('x' * 999)")
    node = Node(config(tmp_path, "n", log_dir=str(small_log_disk), preload=("torch", "regroup.workers.rank.main")))
    try:
        await node.host.prepare()
        store = node.host.start_store(1)
        join = Join("job", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", *store, Restore("none"), f"script:{script}", RankConfig())
        await node.host.form_ranks([join], [0], [])
        (failed,) = await node.wait_for(Failed)
        assert (failed.error.error_class, failed.error.message) == ("io", "[Errno 28] No space left on device")
        (exited,) = await node.wait_for(Exited)
        assert exited.code == 1
        assert await node.host.kill_ranks(1) == []
    finally:
        await node.host.close()
    archived = tmp_path / "storage" / "logs" / "g1-rank0.out"
    assert archived.read_bytes().startswith(b"x" * 999 + b"\n")


async def test_a_failed_preload_is_reported_by_name(tmp_path: Path) -> None:
    async with lone_node(tmp_path, "broken_module", "raise RuntimeError('not today')") as node:
        with pytest.raises(ZygoteRefused, match="'broken_module' failed: RuntimeError: not today"):
            await node.host.prepare()


async def reason_for_exec(folder: Path, module: str, source: str) -> str:
    """Run a rank on a node that preloads `source`; return why the node starts ranks by exec."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    async with lone_node(folder, module, source) as node:
        facts = await node.host.prepare()
        assert facts.launcher == "exec"
        store = node.host.start_store(1)
        join = Join("job", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", *store, Restore("none"), f"script:{script}", RankConfig())
        await node.host.form_ranks([join], [0], [])
        await node.wait_for(Done, within_s=60)
        await node.host.kill_ranks(1)
        return facts.why


async def test_a_preload_that_starts_threads_falls_back_to_exec(tmp_path: Path) -> None:
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    assert "'threaded_module' started 1 thread" in await reason_for_exec(tmp_path, "threaded_module", threads)


async def test_common_libraries_start_no_threads_on_import(tmp_path: Path) -> None:
    async with lone_node(tmp_path, "common_libraries", "import numpy, pyarrow") as node:
        facts = await node.host.prepare()
    assert (facts.launcher, facts.why) == ("fork", "")


async def test_a_preload_that_initializes_the_driver_falls_back_to_exec(tmp_path: Path, cuda_driver: Path) -> None:
    loads = f"import ctypes\ndriver = ctypes.CDLL({str(cuda_driver)!r})\n"
    async with lone_node(tmp_path, "loading_module", loads) as node:
        facts = await node.host.prepare()
        assert (facts.launcher, facts.why) == ("fork", ""), "a driver that is only loaded does no harm"
    why = await reason_for_exec(tmp_path, "cuda_module", f"{loads}driver.cuInit(0)\n")
    assert "'cuda_module' initialized CUDA" in why


async def test_a_checkpoint_in_progress_does_not_count_as_unfinished(nodes: list[Node], tmp_path: Path) -> None:
    writer, other = (node.host for node in nodes)
    folder = tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    folder.mkdir(parents=True)
    uri = f"file://{folder}"
    assert writer.checkpoints.scan() == CheckpointScan(unfinished=(uri,))
    finishing = asyncio.create_task(writer.finish_checkpoint(uri, [], {"step": 8, "generation": 1, "files": []}))
    await asyncio.sleep(0)  # the task starts
    assert writer.checkpoints.scan() == CheckpointScan()
    assert other.checkpoints.scan() == CheckpointScan(unfinished=(uri,)), "in progress on another node"
    await finishing
    for host in (writer, other):
        assert [(item["uri"], item["step"]) for item in host.checkpoints.scan().finished] == [(uri, 8)]


async def test_another_saver_replaces_one_that_died(nodes: list[Node], tmp_path: Path) -> None:
    node, folder = nodes[0], tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    node.host.inject_fault("kill_saver")
    await node.host.finish_checkpoint(f"file://{folder}", [], {"step": 8, "generation": 1, "files": []})
    (note,) = await node.wait_for(Note)
    assert note.kind == "saver_died" and "code -9" in note.data["message"]
    assert (folder / ".metadata").exists() and (folder / "manifest.json").exists()


async def test_a_checkpoint_is_abandoned_if_all_savers_die(nodes: list[Node], tmp_path: Path) -> None:
    host, folder = nodes[0].host, tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    for _ in range(3):
        host.inject_fault("kill_saver")
    with pytest.raises(TaskDied, match="no result"):
        await host.finish_checkpoint(f"file://{folder}", [], {"step": 8, "generation": 1, "files": []})
    assert len(await nodes[0].wait_for(Note, 2)) == 2, "the third was the last"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("fault", "reason"), [("fill_disk", "No space left on device"), ("break_disk", "Input/output error")]
)
async def test_a_failing_disk_costs_one_checkpoint_but_not_the_next(
    fault: str, reason: str, nodes: list[Node], tmp_path: Path
) -> None:
    host, folder = nodes[0].host, tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    host.inject_fault(fault)
    with pytest.raises(TaskFailed, match=reason):
        await host.finish_checkpoint(f"file://{folder}", [], {"step": 8, "generation": 1, "files": []})
    assert not folder.exists()
    await host.finish_checkpoint(f"file://{folder}", [], {"step": 8, "generation": 1, "files": []})
    assert (folder / "manifest.json").exists()
