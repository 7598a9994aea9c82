"""Before a job's first ranks on a node, and again once it was blamed: is it fit? And after a failure that may come of
the network: do all nodes still reach each other?

The check runs beside what a start or a recovery does anyway. Whoever is unfit takes the way of a lost node: the
controller, which hears why, closes it and gives the job another.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regroup.service.domain.job_events import SupervisorPhase
from regroup.service.policy.detection.node_quarantine import node_event_kind_of
from regroup.service.policy.detection.preflight import (
    LINK,
    MAX_PEERS,
    Finding,
    UnfitNode,
    assign_probe_peers,
    find_unfit_nodes,
    may_be_link_failure,
)
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.event_log import EventLog
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.incidents import Incident
from regroup.service.supervisor.intents import IntentTracker
from regroup.service.supervisor.job_config import JobConfig
from regroup.workers.contract.agent_records import PreflightPeer, PreflightReport, PreflightRequest, TransferAddress
from regroup.workers.contract.messages import Note

_CHECK_S = 30.0
_ADDRESS_S = 5.0
_REPLACE_S = 120.0
"""The controller gives another node, or says that there is none, long before."""


class Preflight:
    """Of one life of the job."""

    def __init__(self, payload: JobConfig, gang: Gang, telling: EventLog, intended: IntentTracker) -> None:
        self._payload, self._gang, self._telling, self._intents = payload, gang, telling, intended
        self._is_link_check_due = False

    def require_recheck(self, incident: Incident, lost: Iterable[str]) -> None:
        """A generation ended: check those anew that are blamed for it, or whose agents are others now."""
        passed, cause = self._gang.node_facts.passed_preflight, incident.cause
        passed.difference_update(lost)
        if cause.node_id is not None and node_event_kind_of(cause.reason, cause.evidence) is not None:
            passed.discard(cause.node_id)
        self._is_link_check_due = may_be_link_failure(cause) and len(self._gang.configs) > 1

    def mark_all_passed(self) -> None:
        """All of them have passed in an earlier life of this supervisor, and run the job's ranks."""
        self._gang.node_facts.passed_preflight.update(self._gang.configs)

    async def run_alongside(self, work: Any) -> Any:
        """What `work` returns, once all nodes have passed as well.

        Raises:
            Moved: the job was given another node for one that is unfit; whatever ends `IntentTracker.unless`.
            AgentLostError: a node is unfit, and nothing was done about it.
        """
        working = asyncio.ensure_future(work)
        is_trusted = self._gang.node_facts.passed_preflight >= self._gang.configs.keys() and not self._is_link_check_due
        if is_trusted or not self._payload.preflight:
            return await working
        checking = asyncio.ensure_future(
            check_nodes(self._payload, self._gang, self._telling.note, self._is_link_check_due)
        )
        self._is_link_check_due = False
        try:
            while not (working.done() and checking.done()):
                running = {task for task in (working, checking) if not task.done()}
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()  # raises what it raised: then nobody waits for the check
                if checking.done() and (unfit := checking.result()):
                    await self._replace(unfit)
            return working.result()
        finally:
            for task in (working, checking):
                task.cancel()
            await asyncio.gather(working, checking, return_exceptions=True)

    async def _replace(self, unfit: Sequence[UnfitNode]) -> None:
        """Wait for others in the place of those that are given up."""
        given_up = [each for each in unfit if each.is_excluded]
        told = "; ".join(f"{self._gang.configs[each.node_id].node_name}: {each.message}" for each in given_up)
        self._telling.enter(SupervisorPhase.PREFLIGHT, None, f"waiting for another node: {told}")
        self._gang.missing |= {each.node_id for each in given_up}
        self._intents.lost_nodes = tuple(each.node_id for each in given_up)
        await self._intents.interruptible(asyncio.sleep(_REPLACE_S))
        raise AgentLostError(given_up[0].node_id, f"a node is unfit: {told}")


async def check_nodes(
    payload: JobConfig, gang: Gang, note: Callable[[str, Note], None], is_every_link_doubted: bool = False
) -> Sequence[UnfitNode]:
    """Check the nodes that have not passed, and that others reach them. Nodes that do not answer are left to who misses
    them.

    Args:
        note: hears what each node has found.
        is_every_link_doubted: not only of those nodes.

    Returns:
        Who something speaks against.
    """
    known, names = gang.node_facts, {node: config.node_name for node, config in gang.configs.items()}
    peers = assign_probe_peers(list(names), MAX_PEERS if is_every_link_doubted else 1)
    doubted = names.keys() - known.passed_preflight
    asked = [
        node for node in names if is_every_link_doubted or node in doubted or doubted.intersection(peers.get(node, ()))
    ]
    addresses = await _addresses(gang) if peers else {}

    async def one(node: str) -> PreflightReport:
        reached = tuple(
            PreflightPeer(peer, names[peer], addresses[peer]) for peer in peers.get(node, ()) if peer in addresses
        )
        request = replace(_needs(payload, node, doubted), asked_s=time.time(), peers=reached)
        try:
            return await gang.agents.agent(node, timeout_s=_CHECK_S).run_preflight(request)
        except AgentLostError:
            return PreflightReport(notes=("it did not answer",))
        except AgentError:
            return PreflightReport()

    def say(node: str, data: Mapping[str, Any]) -> None:
        note(node, Note(0, "preflight", {"node": names[node], **data}, time.time()))

    found = dict(zip(asked, await asyncio.gather(*(one(node) for node in asked)), strict=True))
    for node, said in found.items():
        if said.notes:
            say(node, {"message": "; ".join(said.notes)})
    findings = list[Finding]()
    for node, said in found.items():
        findings += [Finding(node, what, message) for what, message in said.failed]
        findings += [Finding(node, LINK, message, peer) for peer, message in said.unreached]
    unfit = find_unfit_nodes(findings, {node: peers.get(node, ()) for node in asked})
    for each in unfit:
        say(each.node_id, {"fault": each.fault.value, "message": each.message})
    known.passed_preflight.update(doubted - {each.node_id for each in unfit if each.is_excluded})
    return unfit


def _needs(payload: JobConfig, node: str, doubted: Collection[str]) -> PreflightRequest:
    """What the job's ranks on a node need; one that has passed is only asked whether it reaches its peers."""
    resources, devices = payload.spec.resources, payload.devices_on(node)
    if node not in doubted:
        return PreflightRequest("cpu", (), 0, 0.0)
    indexes = tuple(devices) if resources.device == "cuda" else ()
    return PreflightRequest(resources.device, indexes, (resources.memory or 0) * len(devices), 0.0)


async def _addresses(gang: Gang) -> Mapping[str, TransferAddress]:
    with contextlib.suppress(AgentLostError, AgentError):
        return await gang.call_all(lambda agent: agent.transfer_address(), timeout_s=_ADDRESS_S)
    return {}
