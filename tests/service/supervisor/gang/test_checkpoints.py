"""Checkpoints in the supervisor, with nodes that share a folder: retention and cleanup."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentLostError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.checkpoints import Checkpoints
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.save_monitor import SaveMonitor
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog, PinnedSet
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.agent.checkpoints.folders import remove_checkpoint
from regroup.workers.agent.checkpoints.saver import CheckpointSaver
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, CheckpointScan, Manifest, SavedFile, SavedShards
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress
from regroup.workers.storage import fsspec_storage
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

SPEC = {
    "name": "t",
    "workload": {"kind": "builtin", "data": {"train": ["/x"]}},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 8, "steps": 6},
    "layout": {"dp": 2},
    "checkpoint": {"every_steps": 2, "keep_last": 1},
}


def no_note(kind: str, data: dict[str, Any]) -> None:
    raise AssertionError(f"unexpected note {kind} {data}")


class Nodes(FakeAgents):
    """Agents without a zygote that write and scan a real folder."""

    def __init__(self, configs: Mapping[str, AgentConfig], scratch: Path) -> None:
        super().__init__()
        self.savers = {
            node: CheckpointSaver(config, scratch / node, BufferPool(), no_note) for node, config in configs.items()
        }
        self.fails: set[tuple[str, str]] = set()
        """Pairs (node, method) that fail."""
        self.lost: set[str] = set()
        self.hangs: set[tuple[str, str]] = set()
        """Pairs (node, method) that do not answer."""
        self.digests: dict[str, int] = {}
        """Node → checksum of its replica, if it differs from the default."""
        self.bases: list[str] = []
        """Base of each save, of every node."""
        self.unchanged: dict[str, int] = {}
        """Node → bytes of a file of an older checkpoint that it uses."""
        self.writing: dict[str, str] = {}
        """Node → URI of a checkpoint that it still writes for a former supervisor."""

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        if (node_id, method) in self.hangs:
            await asyncio.Event().wait()
        if node_id in self.lost:
            raise AgentLostError(node_id, "gone")
        if (node_id, method) in self.fails:
            raise self.error(node_id, AgentErrorKind.OTHER, "no")

    async def _save_checkpoint(
        self, node: str, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str], base: str
    ) -> Any:
        self.bases.append(base)
        fsspec_storage.write_bytes(f"{uri}/{node}", b"shard")
        part = {"alike": [{"w": self.digests.get(node, 7)}]}
        older = [SavedFile("../step-1.gen-1/__0_0.distcp", self.unchanged[node], 0)] if node in self.unchanged else []
        return SavedShards((SavedFile(node, 5, 0), *older), part)

    def _finish_checkpoint(self, node: str, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest) -> Manifest:
        fsspec_storage.write_bytes(f"{uri}/manifest.json", json.dumps(manifest).encode())
        return manifest

    def _remove_checkpoint(self, node: str, uri: str) -> None:
        remove_checkpoint(uri)

    def _scan_checkpoints(self, node: str) -> CheckpointScan:
        saver = self.savers[node]
        with saver._writing_to(self.writing.get(node, "")):  # pyright: ignore[reportPrivateUsage]
            return saver.scan()


class CheckpointSetup:
    """A job of two nodes, and its folder of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec(SPEC).model_dump(mode="json"), "layout": {"dp_shard": 2},
            "nodes": [{"node_id": f"node-{n}", "name": f"n{n}", "address": "h", "ranks": 1} for n in range(2)],
            "storage_uri": f"file://{folder}/s", "datasets_uri": f"file://{folder}/d", "resume": None,
        })  # fmt: skip
        self.folder = folder / "s" / "checkpoints"
        self.folder.mkdir(parents=True)
        configs = self.payload.agent_configs()
        self.nodes = Nodes(configs, folder)
        self.journal = Journal(Records(), "j")
        self.log = GenerationLog(Records(), "j")
        self.checkpoints = Checkpoints(self.payload, Gang(self.nodes, configs), self.journal)

    async def generation(self) -> Generation:
        """Create the next generation."""
        return await self.log.create(
            Generation(0, self.payload.layout, self.payload.places, RestoreSource(RestoreKind.NONE), "start")
        )

    def begin(self, step: int) -> asyncio.Event:
        """Start a save in the newest generation. Return an event that is set when the save has ended."""
        ended = asyncio.Event()
        self.checkpoints.start_save(self.log.past[-1], PinnedSet(step), self.log, ended.set)
        return ended

    async def save(self, step: int) -> None:
        """Save in the newest generation, and wait for retention and cleanup."""
        self.begin(step)
        await asyncio.wait_for(self.checkpoints.wait_for_saves(), 20)

    def leave_partial(self, name: str) -> str:
        """Create the folder of an unfinished save, and return its URI."""
        (self.folder / name).mkdir()
        (self.folder / name / "node-0").write_bytes(b"shard")
        return f"{self.payload.storage_uri}/checkpoints/{name}"

    def names(self) -> list[str]:
        """Return the names of all checkpoint folders."""
        return sorted(path.name for path in self.folder.iterdir())

    async def noted(self, kind: str) -> list[int]:
        """Return the steps of all notes of a kind."""
        events = await self.journal.since("", 0, 0)
        return [event.data["step"] for event in events if event.data.get("kind") == kind]


@pytest.fixture
async def setup(tmp_path: Path) -> CheckpointSetup:
    made = CheckpointSetup(tmp_path)
    await made.log.load()
    await made.generation()
    return made


async def test_the_record_of_a_checkpoint_tells_new_bytes_from_unchanged_ones(setup: CheckpointSetup) -> None:
    setup.nodes.unchanged["node-1"] = 40
    await setup.save(2)
    (written,) = [event.data for event in await setup.journal.since("", 0, 0) if "written_bytes" in event.data]
    assert (written["size_bytes"], written["written_bytes"]) == (50, 10)


async def test_an_unfinished_save_of_an_ended_generation_is_removed(setup: CheckpointSetup) -> None:
    setup.leave_partial("step-2.gen-1")
    await setup.save(4)
    assert setup.names() == ["step-2.gen-1", "step-4.gen-1"], "the generation has not ended"
    await setup.generation()
    await setup.save(6)
    assert setup.names() == ["step-6.gen-2"]
    assert await setup.noted("checkpoint_torn") == [2]


async def test_the_progress_is_that_of_the_save_that_runs(setup: CheckpointSetup) -> None:
    """Check with another save that waits: its progress is not shown."""
    now_s = 100.0
    saves = setup.checkpoints.progress = SaveMonitor(lambda: now_s)
    setup.nodes.hangs = {("node-1", "save_checkpoint")}
    ended = [setup.begin(2), setup.begin(4)]
    await asyncio.sleep(0.05)
    now_s += 5
    for step, done_bytes in ((2, 3), (4, 1)):
        progress = StorageProgress(done_bytes, 9, 2.0)
        saves.receive(AgentReport("node-0", "boot", 1, (), (), save=SaveProgress(1, step, progress)))
    status = saves.status()
    assert status is not None and (status.step, status.generation, status.done_bytes) == (2, 1, 3)
    setup.nodes.hangs = set()
    setup.checkpoints.record_loss(["node-1"])
    await asyncio.wait_for(asyncio.gather(*(each.wait() for each in ended)), 20)
    assert saves.status() is None


async def test_a_save_does_not_wait_for_a_lost_node(setup: CheckpointSetup) -> None:
    """Fail also the second save, which has not begun: its node is lost, too."""
    setup.nodes.hangs = {("node-1", "save_checkpoint")}
    first, second = setup.begin(2), setup.begin(4)
    await asyncio.sleep(0.05)
    assert setup.checkpoints.is_saving and not first.is_set()
    setup.checkpoints.record_loss(["node-1"])
    await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), 20)
    assert not setup.checkpoints.is_saving
    assert await setup.noted("checkpoint_failed") == [2, 4]
    setup.nodes.hangs = set()
    await setup.generation()
    await setup.save(6)
    assert [saved.step for saved in setup.checkpoints.finished()] == [6]


@pytest.mark.parametrize("method", ["scan_checkpoints", "remove_checkpoint"])
async def test_retention_does_not_wait_for_a_lost_node(setup: CheckpointSetup, method: str) -> None:
    """Otherwise the next save, perhaps the last one of the job, would wait as long as Ray keeps the call."""
    if method == "remove_checkpoint":
        await setup.save(2)
    setup.nodes.hangs = {("node-0", method)}
    ended = setup.begin(4)
    await asyncio.sleep(0.05)
    assert setup.checkpoints.is_saving and not ended.is_set()
    setup.checkpoints.record_loss(["node-0"])
    await asyncio.wait_for(ended.wait(), 20)
    assert await setup.noted("checkpoint_failed") == [], "the set itself was saved"
    setup.nodes.hangs = set()
    await setup.generation()
    await setup.save(6)
    assert setup.names() == ["step-6.gen-2"], "retention is repeated after the next save"
    events = await setup.journal.since("", 0, 0)
    removed = [event.data["step"] for event in events if event.type == "checkpoint_removed"]
    assert removed == [2, 4] if method == "remove_checkpoint" else [4]


async def test_a_failed_save_is_removed_at_once(setup: CheckpointSetup) -> None:
    await setup.save(2)
    setup.nodes.fails = {("node-1", "save_checkpoint")}
    await setup.save(4)
    assert setup.names() == ["step-2.gen-1"], "only the last good checkpoint remains"
    assert await setup.noted("checkpoint_failed") == await setup.noted("checkpoint_torn") == [4]


async def test_a_save_with_differing_replicas_is_never_finished(setup: CheckpointSetup) -> None:
    await setup.save(2)
    setup.nodes.digests = {"node-1": 8}
    await setup.save(4)
    assert setup.names() == ["step-2.gen-1"]
    assert [saved.step for saved in setup.checkpoints.finished()] == [2]
    assert await setup.noted("checkpoint_failed") == [4]


async def test_nothing_is_removed_while_a_node_is_unresponsive(setup: CheckpointSetup) -> None:
    await setup.save(2)
    setup.nodes.lost = {"node-1"}
    await setup.save(4)
    assert setup.names() == ["step-2.gen-1", "step-4.gen-1"], "an unresponsive node may still write"
    setup.nodes.lost = set()
    await setup.save(6)
    assert setup.names() == ["step-6.gen-1"]


async def test_a_save_that_a_node_still_writes_is_not_removed(setup: CheckpointSetup) -> None:
    uri = setup.leave_partial("step-2.gen-1")
    await setup.generation()
    setup.nodes.writing = {"node-1": uri}
    await setup.save(4)
    assert setup.names() == ["step-2.gen-1", "step-4.gen-2"]
    setup.nodes.writing = {}
    await setup.save(6)
    assert setup.names() == ["step-6.gen-2"]


async def test_finished_and_unreadable_checkpoints_are_not_removed_as_partial(setup: CheckpointSetup) -> None:
    setup.leave_partial("step-2.gen-1")
    setup.leave_partial("step-3.gen-1")
    (setup.folder / "step-3.gen-1" / "manifest.json").write_text('{"files": [')
    setup.leave_partial("notes")
    await setup.checkpoints.scan()
    finished = {"step": 2, "generation": 1, "files": []}
    (setup.folder / "step-2.gen-1" / "manifest.json").write_text(json.dumps(finished))
    await setup.generation()
    await setup.save(4)
    assert setup.names() == ["notes", "step-2.gen-1", "step-3.gen-1", "step-4.gen-2"]
    await setup.save(6)
    assert setup.names() == ["notes", "step-3.gen-1", "step-6.gen-2"], "retention removes the finished checkpoint"


async def test_retention_of_a_restarted_supervisor_covers_earlier_checkpoints(setup: CheckpointSetup) -> None:
    await setup.save(2)
    setup.checkpoints = Checkpoints(setup.payload, Gang(setup.nodes, setup.payload.agent_configs()), setup.journal)
    await setup.save(4)
    assert setup.names() == ["step-4.gen-1"]


async def test_a_save_uses_the_newest_checkpoint_that_could_be_loaded(setup: CheckpointSetup) -> None:
    await setup.save(2)
    await setup.save(4)
    root = f"{setup.payload.storage_uri}/checkpoints"
    assert setup.nodes.bases == ["", "", *[f"{root}/step-2.gen-1"] * 2]
    await setup.checkpoints.exclude(f"{root}/step-4.gen-1", 1, "damaged")
    await setup.save(6)
    assert setup.nodes.bases[4:] == ["", ""], "retention has removed the other one"
