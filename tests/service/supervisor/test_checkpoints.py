"""The supervisor's side of checkpoints over nodes that share a folder: what is kept, what is collected."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentLostError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.checkpoints import Checkpoints
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generations import Generation, GenerationLog
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.journal import Journal
from regroup.workers.agent.checkpoints import CheckpointSaver
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, CheckpointScan, Manifest, SavedShards
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
    raise AssertionError(f"no saver runs here, let alone says {kind} {data}")


class Nodes(FakeAgents):
    """Agents that write and scan a real folder as real ones do, but without a zygote."""

    def __init__(self, configs: Mapping[str, AgentConfig], scratch: Path) -> None:
        super().__init__()
        self.saving = {
            node: CheckpointSaver(config, scratch / node, BufferPool(), no_note) for node, config in configs.items()
        }
        self.fails: set[tuple[str, str]] = set()
        """(node, method) that fail from now on."""
        self.lost: set[str] = set()
        self.hangs: set[str] = set()
        """Nodes that do not answer `save_checkpoint`."""
        self.digests: dict[str, int] = {}
        """Node → checksum of what its rank holds like the other's, where it is another one."""
        self.writing: dict[str, str] = {}
        """Node → what it still writes by order of a former supervisor."""

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        if node_id in self.lost:
            raise AgentLostError(node_id, "gone")
        if (node_id, method) in self.fails:
            raise self.error(node_id, AgentErrorKind.OTHER, "no")

    async def _save_checkpoint(self, node: str, generation: int, step: int, ranks: Sequence[int], uri: str) -> Any:
        if node in self.hangs:
            await asyncio.Event().wait()
        fsspec_storage.write_bytes(f"{uri}/{node}", b"shard")
        part = {"alike": [{"w": self.digests.get(node, 7)}]}
        return SavedShards(({"name": node, "size_bytes": 5, "crc32": 0},), part)

    def _finish_checkpoint(self, node: str, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest) -> Manifest:
        fsspec_storage.write_bytes(f"{uri}/manifest.json", json.dumps(manifest).encode())
        return manifest

    def _remove_checkpoint(self, node: str, uri: str) -> None:
        fsspec_storage.remove(uri)

    def _scan_checkpoints(self, node: str) -> CheckpointScan:
        saving = self.saving[node]
        with saving._writing_to(self.writing.get(node, "")):  # pyright: ignore[reportPrivateUsage]
            return saving.scan()


class House:
    """One job of two nodes, and its folder of checkpoints."""

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
        """The next one."""
        return await self.log.create(
            Generation(0, self.payload.layout, self.payload.places(), RestoreSource(RestoreKind.NONE), "start")
        )

    def begin(self, step: int) -> asyncio.Event:
        """Save in the newest generation; returns what is set when that is over."""
        ended = asyncio.Event()
        self.checkpoints.start_save(self.log.past[-1], step, self.log, ended.set)
        return ended

    async def save(self, step: int) -> None:
        """Save in the newest generation, and do all that follows from it."""
        self.begin(step)
        await asyncio.wait_for(self.checkpoints.wait_for_saves(), 20)

    def debris(self, name: str) -> str:
        """What a save leaves that was never finished."""
        (self.folder / name).mkdir()
        (self.folder / name / "node-0").write_bytes(b"shard")
        return f"{self.payload.storage_uri}/checkpoints/{name}"

    def names(self) -> list[str]:
        """Folders there are."""
        return sorted(path.name for path in self.folder.iterdir())

    async def noted(self, kind: str) -> list[int]:
        """Steps that notes of a kind name."""
        events = await self.journal.since("", 0, 0)
        return [event.data["step"] for event in events if event.data.get("kind") == kind]


@pytest.fixture
async def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    await made.log.load()
    await made.generation()
    return made


async def test_what_a_generation_that_is_over_left_unfinished_is_collected(house: House) -> None:
    house.debris("step-2.gen-1")
    await house.save(4)
    assert house.names() == ["step-2.gen-1", "step-4.gen-1"], "its generation is not over"
    await house.generation()
    await house.save(6)
    assert house.names() == ["step-6.gen-2"]
    assert await house.noted("checkpoint_torn") == [2]


async def test_nobody_waits_for_what_a_lost_node_had_to_save(house: House) -> None:
    house.nodes.hangs = {"node-1"}
    first, second = house.begin(2), house.begin(4)
    await asyncio.sleep(0.05)
    assert house.checkpoints.is_saving and not first.is_set()
    house.nodes.hangs = set()
    house.checkpoints.record_loss(["node-1"])
    await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), 20)
    assert not house.checkpoints.is_saving
    assert await house.noted("checkpoint_failed") == [2]
    assert [saved.step for saved in house.checkpoints.finished()] == [4]


async def test_a_save_that_failed_is_collected_at_once(house: House) -> None:
    await house.save(2)
    house.nodes.fails = {("node-1", "save_checkpoint")}
    await house.save(4)
    assert house.names() == ["step-2.gen-1"], "the last good one, and nothing else"
    assert await house.noted("checkpoint_failed") == await house.noted("checkpoint_torn") == [4]


async def test_a_set_in_which_replicas_differ_is_never_finished(house: House) -> None:
    await house.save(2)
    house.nodes.digests = {"node-1": 8}
    await house.save(4)
    assert house.names() == ["step-2.gen-1"]
    assert [saved.step for saved in house.checkpoints.finished()] == [2]
    assert await house.noted("checkpoint_failed") == [4]


async def test_nothing_is_collected_while_a_node_is_silent(house: House) -> None:
    await house.save(2)
    house.nodes.lost = {"node-1"}
    await house.save(4)
    assert house.names() == ["step-2.gen-1", "step-4.gen-1"], "what is silent may still write"
    house.nodes.lost = set()
    await house.save(6)
    assert house.names() == ["step-6.gen-1"]


async def test_what_a_node_still_writes_for_a_former_supervisor_is_left(house: House) -> None:
    uri = house.debris("step-2.gen-1")
    await house.generation()
    house.nodes.writing = {"node-1": uri}
    await house.save(4)
    assert house.names() == ["step-2.gen-1", "step-4.gen-2"]
    house.nodes.writing = {}
    await house.save(6)
    assert house.names() == ["step-6.gen-2"]


async def test_what_was_finished_meanwhile_and_what_cannot_be_read_are_no_debris(house: House) -> None:
    house.debris("step-2.gen-1")
    house.debris("step-3.gen-1")
    (house.folder / "step-3.gen-1" / "manifest.json").write_text('{"files": [')
    house.debris("notes")
    await house.checkpoints.scan()
    finished = {"step": 2, "generation": 1, "files": []}
    (house.folder / "step-2.gen-1" / "manifest.json").write_text(json.dumps(finished))
    await house.generation()
    await house.save(4)
    assert house.names() == ["notes", "step-2.gen-1", "step-3.gen-1", "step-4.gen-2"]
    await house.save(6)
    assert house.names() == ["notes", "step-3.gen-1", "step-6.gen-2"], "as a checkpoint, retention gives it up"


async def test_a_restarted_supervisor_gives_up_what_the_former_one_saved(house: House) -> None:
    await house.save(2)
    house.checkpoints = Checkpoints(house.payload, Gang(house.nodes, house.payload.agent_configs()), house.journal)
    await house.save(4)
    assert house.names() == ["step-4.gen-1"]
