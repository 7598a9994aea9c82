"""Unfit nodes before ranks start: told of, given up, and others in their place; nothing of it where all are fit."""

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
LIES = ("device", "core 3 multiplies wrongly")


class Nodes(FakeNodes):
    """Of which some find something wrong with themselves."""

    def __init__(self, unfit: dict[str, tuple[str, str]], breaks: dict[tuple[int, int], Message | str]) -> None:
        super().__init__(breaks)
        self.unfit = unfit
        self.cut: set[tuple[str, str]] = set()
        """(one, other): the one does not reach the other."""
        self.orders: list[tuple[str, PreflightRequest]] = []

    def _run_preflight(self, node: str, request: PreflightRequest) -> PreflightReport:
        self.orders.append((node, request))
        return PreflightReport(
            (self.unfit[node],) if node in self.unfit else (),
            tuple(
                (peer.node_id, f"it does not reach {peer.name}")
                for peer in request.peers
                if (node, peer.node_id) in self.cut
            ),
        )


class CheckedRig(Rig):
    """Whose nodes are checked before ranks start."""

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


async def test_fit_nodes_are_asked_once_each_with_what_the_job_needs() -> None:
    rig = CheckedRig(spec={"resources": {"memory": "1GiB"}}, breaks={(1, 3): Exited(0, 1, -9, 1.0)})
    assert await rig.end() is None
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert [node for node, _ in rig.nodes.orders] == ["node-0", "node-1"], "a rank that died is no node's fault"
    first, second = (order for _, order in rig.nodes.orders)
    assert first.peers == (PreflightPeer("node-1", "n-node-1", TransferAddress("node-1", 1, "t")),)
    assert [peer.name for peer in second.peers] == ["n-node-0"]
    assert (first.device, first.memory_bytes) == ("cpu", 2**30)
    assert await rig.notes() == []


async def test_it_can_be_switched_off() -> None:
    rig = CheckedRig({"node-0": LIES}, preflight=False)
    await rig.end()
    assert rig.nodes.orders == [] and (await rig.events("state"))[-1]["state"] == "SUCCEEDED"


async def test_an_unfit_node_is_told_of_and_another_takes_its_place() -> None:
    rig = CheckedRig({"node-1": LIES})
    await rig.wait_for_loss("node-1")
    (note,) = await rig.notes()
    events = await rig.journal.since("", 0, 0)
    (fault,) = faults_in("j", events, {"n-node-1": "machine-1"}, 1e12)
    assert (fault.node, fault.kind, fault.message) == ("machine-1", NodeEventKind.PREFLIGHT, LIES[1])
    assert note["message"] == LIES[1] and await rig.events("generation") == [], "no rank was started there"
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    assert (await rig.end()).nodes == assigned(nodes)
    rig.payload = rig.payload.with_nodes(assigned(nodes), rig.payload.layout)
    rig.begin()
    assert await rig.end() is None
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert {each["node_id"] for each in (await rig.events("generation"))[0]["ranks"]} == {"node-0", "node-2"}


async def test_without_another_node_the_job_gives_its_nodes_back_and_says_why() -> None:
    rig = CheckedRig({"node-1": LIES})
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(no_spare="no other node has capacity; n-node-1 is quarantined"))
    await rig.end()
    last = (await rig.events("state"))[-1]
    assert last["state"] == "QUEUED" and "n-node-1 is quarantined" in last["message"]


async def test_of_a_broken_link_both_ends_are_told_of_and_one_is_given_up() -> None:
    rig = CheckedRig()
    rig.nodes.cut = {("node-0", "node-1")}
    await rig.wait_for_loss("node-1")
    assert [(note["node"], note["fault"]) for note in await rig.notes()] == [("n-node-1", "link"), ("n-node-0", "link")]
    rig.life.set_intents(intents(cancel=True))
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "CANCELLED"


def cut_with_generation_1(rig: "CheckedRig", *pairs: tuple[str, str]) -> None:
    """These links break while it trains."""
    ending = rig.nodes._kill_ranks

    def end(node: str, generation: int) -> DeathProof:
        rig.nodes.cut.update(pairs)
        return ending(node, generation)

    rig.nodes._kill_ranks = end


async def test_nodes_that_no_longer_reach_each_other_are_found_when_ranks_lose_their_connections() -> None:
    rig = CheckedRig(breaks={(1, 3): LOST_PEER})
    cut_with_generation_1(rig, ("node-0", "node-1"), ("node-1", "node-0"))
    await rig.wait_for_loss("node-1")
    assert [(note["node"], note["fault"]) for note in await rig.notes()] == [("n-node-1", "link"), ("n-node-0", "link")]
    assert len(await rig.events("generation")) == 1, "none was started over a link that is broken"
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    rig.nodes.cut.clear()
    assert (await rig.end()).nodes == assigned(nodes)


async def test_all_pairs_are_tried_once_after_connections_were_lost_and_devices_are_not() -> None:
    rig = CheckedRig(breaks={(1, 3): LOST_PEER}, spec={"layout": {"dp": 3}, "resources": {"memory": "1GiB"}},
                     nodes=[place(f"node-{n}") for n in range(3)], layout={"dp_shard": 3})  # fmt: skip
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    before, after = rig.nodes.orders[:3], rig.nodes.orders[3:]
    assert [len(order.peers) for _, order in before] == [1, 1, 1]
    assert [(node, len(order.peers), order.memory_bytes) for node, order in after] == [
        (f"node-{n}", 2, 0) for n in range(3)
    ]


async def test_an_agent_that_comes_up_anew_is_asked_again_before_ranks_start_there() -> None:
    rig = CheckedRig(breaks={(1, 3): "node-1"})
    await rig.end()
    assert [node for node, _ in rig.nodes.orders] == ["node-0", "node-1", "node-0", "node-1"], "and who is to reach it"
    assert rig.nodes.orders[2][1].indexes == () and (await rig.events("state"))[-1]["state"] == "SUCCEEDED"


async def test_an_error_of_the_start_is_not_held_up_by_the_check() -> None:
    rig = CheckedRig()
    rig.nodes.stuck = "run_preflight"
    rig.nodes.refuse = {"list_sources": "no such file"}
    await rig.end()
    assert (await rig.events("state"))[-1]["reason"] == "invalid_input"


async def test_a_node_that_does_not_answer_is_left_to_who_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = CheckedRig()

    def lost(node: str, request: PreflightRequest) -> Any:
        raise AgentLostError(node, "it is gone")

    monkeypatch.setattr(rig.nodes, "_run_preflight", lost)
    await rig.end()
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"
    assert [note["message"] for note in await rig.notes()] == ["the agent did not answer"] * 2


async def test_of_several_lost_agents_each_is_asked_again_whoever_is_named_as_the_cause() -> None:
    rig = CheckedRig(spec={"resources": {"memory": "1GiB"}}, breaks={(1, 3): "node-1"})
    ending = rig.nodes._kill_ranks

    def end(node: str, generation: int) -> DeathProof:
        if node == "node-0" and generation == 1:
            raise AgentLostError(node, "it died when it was to end its ranks")
        return ending(node, generation)

    rig.nodes._kill_ranks = end
    await rig.end()
    assert [(node, order.memory_bytes) for node, order in rig.nodes.orders[2:]] == [
        ("node-0", 2**30),
        ("node-1", 2**30),
    ]
