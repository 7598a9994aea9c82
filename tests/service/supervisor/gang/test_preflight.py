"""Preflight checks. Unfit nodes are reported and replaced before ranks start."""

from typing import Any

import pytest

from regroup.service.cluster_state.node_health import faults_in
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.ports.agents import AgentLostError
from regroup.workers.contract.agent_records import (
    DeathProof,
    PreflightPeer,
    PreflightReport,
    PreflightRequest,
    TransferAddress,
)
from regroup.workers.contract.messages import Exited, Failed, Message
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.support.doubles.supervised_job import SPEC, FakeNodes, Rig
from tests.support.inputs.sync_records import assigned, intents

LOST_PEER = Failed(0, 1, RankError(ErrorClass.COLLATERAL, "RuntimeError", "reset by peer", "", 3, "backward", 3.0))
MISCALCULATES = ("device", "core 3 multiplies wrongly")


class Nodes(FakeNodes):
    """Nodes of which some are unfit."""

    def __init__(self, unfit: dict[str, tuple[str, str]], breaks: dict[tuple[int, int], Message | str]) -> None:
        super().__init__(breaks)
        self.unfit = unfit
        self.cut: set[tuple[str, str]] = set()
        """(source, target): the source cannot reach the target."""
        self.requests: list[tuple[str, PreflightRequest]] = []

    def _run_preflight(self, node: str, request: PreflightRequest) -> PreflightReport:
        self.requests.append((node, request))
        return PreflightReport(
            (self.unfit[node],) if node in self.unfit else (),
            tuple(
                (peer.node_id, f"it does not reach {peer.name}")
                for peer in request.peers
                if (node, peer.node_id) in self.cut
            ),
        )


class CheckedRig(Rig):
    """A rig with preflight checks."""

    nodes: Nodes

    def __init__(
        self,
        unfit: dict[str, tuple[str, str]] | None = None,
        breaks: dict[tuple[int, int], Message | str] | None = None,
        spec: dict[str, Any] | None = None,
        **payload: Any,
    ) -> None:
        super().__init__(
            Nodes(unfit or {}, breaks or {}),
            {**SPEC, **(spec or {})},
            **{"preflight": True, "nodes": [place(f"node-{n}") for n in range(2)], **payload},
        )

    async def notes(self) -> list[Any]:
        return [note for note in await self.events("note") if note["kind"] == "preflight"]


def place(node: str) -> dict[str, Any]:
    return {"node_id": node, "name": f"n-{node}", "address": "h", "ranks": 1}


async def test_each_fit_node_is_checked_once_with_the_needs_of_the_job() -> None:
    rig = CheckedRig(spec={"resources": {"memory": "1GiB"}}, breaks={(1, 3): Exited(0, 1, -9, 1.0)})
    assert await rig.end() is None
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert [node for node, _ in rig.nodes.requests] == ["node-0", "node-1"], "no check follows the death of a rank"
    first, second = (order for _, order in rig.nodes.requests)
    assert first.peers == (PreflightPeer("node-1", "n-node-1", TransferAddress("node-1", 1, "t", "node-1")),)
    assert [peer.name for peer in second.peers] == ["n-node-0"]
    assert (first.device, first.memory_bytes) == ("cpu", 2**30)
    assert await rig.notes() == []


async def test_the_preflight_check_can_be_disabled() -> None:
    rig = CheckedRig({"node-0": MISCALCULATES}, preflight=False)
    await rig.end()
    assert rig.nodes.requests == [] and (await rig.events("state"))[-1]["state"] == "SUCCEEDED"


async def test_an_unfit_node_is_reported_and_replaced() -> None:
    rig = CheckedRig({"node-1": MISCALCULATES})
    await rig.wait_for_loss("node-1")
    (note,) = await rig.notes()
    events = await rig.journal.since("", 0, 0)
    (fault,) = faults_in("j", events, {"n-node-1": "machine-1"}, 1e12)
    assert (fault.node, fault.kind, fault.message) == ("machine-1", NodeEventKind.PREFLIGHT, MISCALCULATES[1])
    assert note["message"] == MISCALCULATES[1] and await rig.events("generation") == [], (
        "no rank starts on an unfit node"
    )
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    assert (await rig.end()).nodes == assigned(nodes)
    rig.payload = rig.payload.with_nodes(assigned(nodes), rig.payload.layout)
    rig.begin()
    assert await rig.end() is None
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert {each["node_id"] for each in (await rig.events("generation"))[0]["ranks"]} == {"node-0", "node-2"}


async def test_without_a_substitute_the_job_is_requeued_with_the_reason() -> None:
    rig = CheckedRig({"node-1": MISCALCULATES})
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(no_spare="no other node has capacity; n-node-1 is quarantined"))
    await rig.end()
    last = (await rig.events("state"))[-1]
    assert last["state"] == "QUEUED" and "n-node-1 is quarantined" in last["message"]


async def test_both_ends_of_a_broken_link_are_reported_and_one_is_replaced() -> None:
    rig = CheckedRig()
    rig.nodes.cut = {("node-0", "node-1")}
    await rig.wait_for_loss("node-1")
    assert [(note["node"], note["fault"]) for note in await rig.notes()] == [("n-node-1", "link"), ("n-node-0", "link")]
    rig.life.set_intents(intents(cancel=True))
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "CANCELLED"


def cut_with_generation_1(rig: "CheckedRig", *pairs: tuple[str, str]) -> None:
    """Break these links during generation 1."""
    kill_ranks = rig.nodes._kill_ranks

    def end(node: str, generation: int) -> DeathProof:
        rig.nodes.cut.update(pairs)
        return kill_ranks(node, generation)

    rig.nodes._kill_ranks = end


async def test_broken_links_are_found_when_ranks_lose_their_connections() -> None:
    rig = CheckedRig(breaks={(1, 3): LOST_PEER})
    cut_with_generation_1(rig, ("node-0", "node-1"), ("node-1", "node-0"))
    await rig.wait_for_loss("node-1")
    assert [(note["node"], note["fault"]) for note in await rig.notes()] == [("n-node-1", "link"), ("n-node-0", "link")]
    assert len(await rig.events("generation")) == 1, "no generation starts with a broken link"
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    rig.nodes.cut.clear()
    assert (await rig.end()).nodes == assigned(nodes)


async def test_lost_connections_cause_a_check_of_all_pairs_but_not_of_devices() -> None:
    rig = CheckedRig(breaks={(1, 3): LOST_PEER}, spec={"layout": {"dp": 3}, "resources": {"memory": "1GiB"}},
                     nodes=[place(f"node-{n}") for n in range(3)], layout={"dp_shard": 3})  # fmt: skip
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    before, after = rig.nodes.requests[:3], rig.nodes.requests[3:]
    assert [len(order.peers) for _, order in before] == [1, 1, 1]
    assert [(node, len(order.peers), order.memory_bytes) for node, order in after] == [
        (f"node-{n}", 2, 0) for n in range(3)
    ]


async def test_a_restarted_agent_is_checked_again_before_its_ranks_start() -> None:
    rig = CheckedRig(breaks={(1, 3): "node-1"})
    await rig.end()
    assert [node for node, _ in rig.nodes.requests] == ["node-0", "node-1", "node-0", "node-1"], (
        "its peer is checked as well"
    )
    assert rig.nodes.requests[2][1].indexes == () and (await rig.events("state"))[-1]["state"] == "SUCCEEDED"


async def test_an_invalid_input_is_reported_without_waiting_for_the_check() -> None:
    rig = CheckedRig()
    rig.nodes.stuck = "run_preflight"
    rig.nodes.refuse = {"list_sources": "no such file"}
    await rig.end()
    assert (await rig.events("state"))[-1]["reason"] == "invalid_input"


async def test_an_agent_that_does_not_answer_the_check_is_not_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = CheckedRig()

    def lost(node: str, request: PreflightRequest) -> Any:
        raise AgentLostError(node, "it is gone")

    monkeypatch.setattr(rig.nodes, "_run_preflight", lost)
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert [note["message"] for note in await rig.notes()] == ["the agent did not answer"] * 2


async def test_each_lost_agent_is_checked_again_also_if_another_is_the_cause() -> None:
    rig = CheckedRig(spec={"resources": {"memory": "1GiB"}}, breaks={(1, 3): "node-1"})
    kill_ranks = rig.nodes._kill_ranks

    def end(node: str, generation: int) -> DeathProof:
        if node == "node-0" and generation == 1:
            raise AgentLostError(node, "the agent died while it killed its ranks")
        return kill_ranks(node, generation)

    rig.nodes._kill_ranks = end
    await rig.end()
    assert [(node, order.memory_bytes) for node, order in rig.nodes.requests[2:]] == [
        ("node-0", 2**30),
        ("node-1", 2**30),
    ]
