"""Durable storage is proven before the first training, and is a condition of the job after that."""

from pathlib import Path
from typing import Any

import pytest

from regroup.service.supervisor.gang import storage_proof
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.agent.agent import NodeAgent
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import to_json
from tests.support.doubles.memory_records import Records
from tests.support.doubles.planned_job import PlannedRig
from tests.support.doubles.supervised_job import SPEC, FakeNodes, Rig, life, outcomes, run


class Storage:
    """Durable storage of each node: a file that one node wrote is visible on the nodes with the same storage."""

    def __init__(self, nodes: FakeNodes, **of_node: str) -> None:
        self.of_node, self.proofs = of_node, set[tuple[str, str]]()
        self.broken: set[str] = set()
        """Nodes whose storage refuses."""
        self.nodes = nodes
        nodes._check_storage = self.check  # type: ignore[method-assign]
        nodes._write_storage_proof = self.write  # type: ignore[attr-defined]

    def check(self, node: str, nonce: str) -> bool:
        self._answer(node)
        return (self.of_node.get(node.replace("-", "_"), "shared"), nonce) in self.proofs

    def write(self, node: str, nonce: str) -> None:
        self._answer(node)
        self.proofs.add((self.of_node.get(node.replace("-", "_"), "shared"), nonce))

    def _answer(self, node: str) -> None:
        if node in self.broken:
            raise self.nodes.error(node, AgentErrorKind.STORAGE, "OSError: read-only file system")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_proof, "_VISIBLE_WITHIN_S", 0.1)
    monkeypatch.setattr(storage_proof, "_POLL_S", 0.01)
    monkeypatch.setattr(storage_proof, "_RECHECK_S", 0.1)


async def conditions(journal: Journal) -> list[tuple[str, str]]:
    notes = [event.data for event in await journal.since("", 0, 0) if event.type == "note"]
    return [(note["node"], note["message"]) for note in notes if note["kind"] == "condition"]


async def test_a_job_whose_nodes_have_storage_of_their_own_is_refused_before_training() -> None:
    nodes = FakeNodes({})
    Storage(nodes, node_0="a", node_1="b")
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "invalid_input")
    assert "file:///s/jobs" in last.data["message"] or "'file:///s'" in last.data["message"]
    assert "n1 does not see a file there that n0 sees" in last.data["message"]
    assert nodes.formed == []


@pytest.mark.parametrize("roots", [("one", "other"), ("same", "same")])
async def test_agents_that_see_different_folders_are_refused_before_training(
    roots: tuple[str, str], tmp_path: Path
) -> None:
    """Let the agents' own checks decide, each below the folder that its node has at the place of the storage."""
    nodes, agents = FakeNodes({}), dict[str, NodeAgent]()
    for node, root in zip(("node-0", "node-1"), roots, strict=True):
        uri = (tmp_path / root).as_uri()
        agents[node] = NodeAgent(to_json(AgentConfig("j", "t", node, node, "127.0.0.1", "s", uri, uri)))
    nodes._check_storage = lambda node, nonce: agents[node].check_storage(nonce)  # type: ignore[assignment]
    nodes._write_storage_proof = lambda node, nonce: agents[node].write_storage_proof(nonce)  # type: ignore[attr-defined]
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1].data
    if roots[0] == roots[1]:
        assert last["state"] == "SUCCEEDED"
        return
    assert (last["state"], last["reason"], nodes.formed) == ("FAILED", "invalid_input", [])
    assert "is not shared: n1 does not see a file there that n0 sees" in last["message"]


async def test_one_node_writes_and_the_others_read() -> None:
    nodes = FakeNodes({})
    storage = Storage(nodes)
    life, journal = await run(nodes)
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")
    assert storage.proofs == {("shared", "j-0")}
    assert [node for node, method in nodes.calls if method == "write_storage_proof"] == ["node-0"]
    assert (life.status().storage_proof, life.status().storage_nodes) == ("j-0", ("n0", "n1"))


async def test_a_job_that_cannot_write_at_its_first_start_is_refused() -> None:
    nodes = FakeNodes({})
    Storage(nodes).broken = {"node-1"}
    _, journal = await run(nodes)
    last = (await journal.since("", 0, 0))[-1]
    assert (last.data["state"], last.data["reason"]) == ("FAILED", "invalid_input")
    assert "read-only file system (node n1)" in last.data["message"]


async def test_a_recovery_from_memory_does_not_wait_for_storage_that_refuses_writes() -> None:
    nodes = FakeNodes({(1, 4): "node-1"})
    storage = Storage(nodes)
    replaced = nodes.start

    async def start(config: Any) -> None:
        if ("node-1", "kill") in nodes.calls:
            storage.broken = {"node-0", "node-1"}
        await replaced(config)

    kept: dict[str, Any] = {}
    forget = nodes._forget

    def forget_but_mirror(node: str) -> None:
        kept.update(nodes.held)
        forget(node)

    nodes.start, nodes._forget = start, forget_but_mirror  # type: ignore[method-assign]
    nodes._list_shards = lambda node: list(kept.values()) if node == "node-0" else []  # type: ignore[method-assign]
    _, journal = await run(nodes)
    incident = [event.data for event in await journal.since("", 0, 0) if event.type == "incident"][-1]
    assert (incident["reason"], incident["steps_lost"]) == ("agent_lost", 0)
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")
    (node, message), *_ = await conditions(journal)
    assert node == "n1" and "read-only file system; training continues" in message
    assert [event.data for event in await journal.since("", 0, 0) if event.data.get("phase") == "storage"] == []


async def test_a_node_that_joins_while_storage_fails_is_reported_until_it_is_back() -> None:
    rig = PlannedRig(SPEC)
    storage = Storage(rig.nodes)
    try:
        await rig.wait_for_steps()
        storage.broken = {"node-2"}
        rig.drain(within_s=None)
        await rig.relocate()
        await rig.wait_for_steps(generation=2)
        assert rig.life.status().unready is None
        storage.broken = set()
        await rig.until(lambda: "node-2" in rig.gang.node_facts.storage_seen)
        assert (await conditions(rig.journal))[-1] == ("node-2", "")
    finally:
        await end(rig)


async def test_a_node_with_storage_of_its_own_cannot_join() -> None:
    rig = PlannedRig(SPEC)
    Storage(rig.nodes, node_2="own")
    try:
        await rig.wait_for_steps()
        rig.drain()
        unready = await rig.until(lambda: rig.life.status().unready)
        assert "node-2 does not see a file there that node-0, node-1 sees" in unready.why
        await rig.wait_for_steps()
    finally:
        await end(rig)


async def test_a_restarted_supervisor_writes_no_second_proof() -> None:
    nodes = FakeNodes({})
    storage = Storage(nodes)
    rig = Rig(nodes)
    await rig.end()
    proof = storage_proof.StorageProof(Gang(nodes, rig.payload.agent_configs()), "j-0", lambda node, note: None)
    await proof.run(may_defer=True)
    assert sum(method == "write_storage_proof" for _, method in nodes.calls) == 1
    assert storage.proofs == {("shared", "j-0")}


async def end(rig: PlannedRig) -> None:
    for task in (rig.running, *rig.nodes.tasks):
        task.cancel()


async def test_a_node_that_joins_does_not_wait_for_storage_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_proof, "_SOON_S", 0.05)
    nodes = FakeNodes({})
    nodes.stuck = "check_storage"
    payload = life(nodes, Records())[0].payload
    notes: list[str] = []
    gang = Gang(nodes, payload.agent_configs())
    proof = storage_proof.StorageProof(gang, "j-0", lambda node, note: notes.append(note.data["message"]))
    await proof.run(may_defer=True)
    assert gang.node_facts.storage_deferred == {"node-0", "node-1"}
    assert "durable storage did not respond" in notes[0]


async def test_the_first_node_with_working_storage_writes_the_proof() -> None:
    nodes = FakeNodes({})
    storage = Storage(nodes)
    storage.broken = {"node-0"}
    gang = Gang(nodes, life(nodes, Records())[0].payload.agent_configs())
    await storage_proof.StorageProof(gang, "j-1", lambda node, note: None).run(may_defer=True)
    assert storage.proofs == {("shared", "j-1")} and set(gang.node_facts.storage_seen) == {"node-1"}
