"""Preflight: checks of nodes before a job's first ranks start there, and again after a failure.

A node is checked again if a failure was attributed to it. After a possible network failure, all links between nodes are
checked. The checks run while a start or a recovery does its other work. An unfit node is treated like a lost node: the
controller receives the reason, quarantines the node and assigns another one.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regroup.service.domain.supervisor_phase import SupervisorPhase
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
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.intents import IntentTracker
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.agent_records import PreflightPeer, PreflightReport, PreflightRequest, TransferAddress
from regroup.workers.contract.messages import Note

_CHECK_S = 30.0
_ADDRESS_S = 5.0
_REPLACE_S = 120.0
"""Longest wait in seconds for another node. The controller usually answers much earlier."""


class Preflight:
    """Checks the nodes of one lifecycle."""

    def __init__(
        self, payload: JobConfig, gang: Gang, state: SupervisorState, log: EventLog, intents: IntentTracker
    ) -> None:
        self._payload, self._gang, self._intents = payload, gang, intents
        self._state, self._log = state, log
        self._is_link_check_due = False

    def require_recheck(self, incident: Incident, lost: Iterable[str]) -> None:
        """Require another check of nodes that a failure was attributed to, or whose agents were replaced."""
        passed, cause = self._gang.node_facts.passed_preflight, incident.cause
        passed.difference_update(lost)
        if cause.node_id is not None and node_event_kind_of(cause.reason, cause.evidence) is not None:
            passed.discard(cause.node_id)
        self._is_link_check_due = may_be_link_failure(cause) and len(self._gang.configs) > 1

    def mark_all_passed(self) -> None:
        """Mark all nodes as passed: an earlier incarnation of this supervisor checked them, and they run ranks."""
        self._gang.node_facts.passed_preflight.update(self._gang.configs)

    async def run_alongside(self, work: Any) -> Any:
        """Run the checks concurrently with `work`. Return its result once all nodes have passed.

        Raises:
            Relocated: the controller replaced an unfit node. Other outcomes of `IntentTracker.interruptible`.
            AgentLostError: a node is unfit and was not replaced.
        """
        work_task = asyncio.ensure_future(work)
        is_trusted = self._gang.node_facts.passed_preflight >= self._gang.configs.keys() and not self._is_link_check_due
        if is_trusted or not self._payload.preflight:
            return await work_task
        check_task = asyncio.ensure_future(
            check_nodes(self._payload, self._gang, self._log.emit_note, self._is_link_check_due)
        )
        self._is_link_check_due = False
        try:
            while not (work_task.done() and check_task.done()):
                running = {task for task in (work_task, check_task) if not task.done()}
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if work_task.done():
                    work_task.result()  # raises the error of `work` without waiting for the checks
                if check_task.done() and (unfit := check_task.result()):
                    await self._replace(unfit)
            return work_task.result()
        finally:
            for task in (work_task, check_task):
                task.cancel()
            await asyncio.gather(work_task, check_task, return_exceptions=True)

    async def _replace(self, unfit: Sequence[UnfitNode]) -> None:
        """Wait until the controller replaces the nodes that the job must not use."""
        excluded = [each for each in unfit if each.is_excluded]
        reasons = "; ".join(f"{self._gang.configs[each.node_id].node_name}: {each.message}" for each in excluded)
        self._state.enter_phase(SupervisorPhase.PREFLIGHT, None, f"waiting for another node: {reasons}")
        self._gang.missing |= {each.node_id for each in excluded}
        self._intents.lost_nodes = tuple(each.node_id for each in excluded)
        await self._intents.interruptible(asyncio.sleep(_REPLACE_S))
        raise AgentLostError(excluded[0].node_id, f"a node is unfit: {reasons}")


async def check_nodes(
    payload: JobConfig, gang: Gang, emit_note: Callable[[str, Note], None], is_every_link_doubted: bool = False
) -> Sequence[UnfitNode]:
    """Check the nodes that have not passed, and the links to them. Failure detection handles nodes that do not answer.

    Args:
        emit_note: receives the findings of each node.
        is_every_link_doubted: check the links between all nodes.

    Returns:
        The unfit nodes, with their faults.
    """
    facts, names = gang.node_facts, {node: config.node_name for node, config in gang.configs.items()}
    peers = assign_probe_peers(list(names), MAX_PEERS if is_every_link_doubted else 1)
    doubted = names.keys() - facts.passed_preflight
    checked = [
        node for node in names if is_every_link_doubted or node in doubted or doubted.intersection(peers.get(node, ()))
    ]
    addresses = await _addresses(gang) if peers else {}

    async def one(node: str) -> PreflightReport:
        reached = tuple(
            PreflightPeer(peer, names[peer], addresses[peer]) for peer in peers.get(node, ()) if peer in addresses
        )
        request = replace(_needs(payload, node, doubted), requested_s=time.time(), peers=reached)
        try:
            return await gang.agents.agent(node, timeout_s=_CHECK_S).run_preflight(request)
        except AgentLostError:
            return PreflightReport(notes=("the agent did not answer",))
        except AgentError:
            return PreflightReport()

    def emit(node: str, data: Mapping[str, Any]) -> None:
        emit_note(node, Note(0, "preflight", {"node": names[node], **data}, time.time()))

    found = dict(zip(checked, await asyncio.gather(*(one(node) for node in checked)), strict=True))
    for node, report in found.items():
        if report.notes:
            emit(node, {"message": "; ".join(report.notes)})
    findings = list[Finding]()
    for node, report in found.items():
        findings += [Finding(node, what, message) for what, message in report.failed]
        findings += [Finding(node, LINK, message, peer) for peer, message in report.unreached]
    unfit = find_unfit_nodes(findings, {node: peers.get(node, ()) for node in checked})
    for each in unfit:
        emit(each.node_id, {"fault": each.fault.value, "message": each.message})
    facts.passed_preflight.update(doubted - {each.node_id for each in unfit if each.is_excluded})
    return unfit


def _needs(payload: JobConfig, node: str, doubted: Collection[str]) -> PreflightRequest:
    """Return the checks that the job's ranks on a node need. Check only the links of a node that has passed."""
    resources, devices = payload.spec.resources, payload.devices_on(node)
    if node not in doubted:
        return PreflightRequest("cpu", (), 0, 0.0)
    indexes = tuple(devices) if resources.device == "cuda" else ()
    return PreflightRequest(resources.device, indexes, (resources.memory or 0) * len(devices), 0.0)


async def _addresses(gang: Gang) -> Mapping[str, TransferAddress]:
    with contextlib.suppress(AgentLostError, AgentError):
        return await gang.call_all(lambda agent: agent.transfer_address(), timeout_s=_ADDRESS_S)
    return {}
