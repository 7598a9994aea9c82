"""Uploads of evidence, with in-memory agents: their time, missing evidence, and removal of the oldest."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.gang.evidence import MAX_INCIDENTS, Evidence
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

NAMES = {"n0": "alpha", "n1": "beta", "n2": "gamma"}


class Nodes(FakeAgents):
    """Agents with the answers that a test sets."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.answers = answers
        self.requests: list[tuple[str, str, tuple[Any, ...]]] = []

    async def start(self, config: AgentConfig) -> None:
        raise AssertionError("no agent is started")

    async def kill(self, node_id: str) -> None:
        raise AssertionError("no agent is killed")

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        self.requests.append((node_id, method, tuple(arguments)))
        if isinstance(error := self.answers[node_id], Exception):
            raise error

    def _upload_evidence(self, node: str, generation: int, incident: str) -> int:
        return self.answers[node]


class Rig:
    """The evidence of a job that has released its third node."""

    def __init__(self, records: Records, answers: Mapping[str, Any]) -> None:
        self.nodes = Nodes(answers)
        places = ("h", "s", "file:///s", "file:///d")
        configs = {node: AgentConfig("j", "t", node, NAMES[node], *places) for node in answers}
        self.journal = Journal(records, "j")
        self.state = SupervisorState(EventLog(self.journal, 1), is_script=False)
        self.evidence = Evidence(Gang(self.nodes, configs), self.state, lambda generation: NAMES)

    async def incident(self, number: int) -> Incident:
        """Open an incident, as at the start of a recovery."""
        incident = Incident(f"i{number}", number, Cause(Reason.RANK_EXIT, "rank 1 killed", 1.0, 1), 5)
        incident.mark_phase("fault_s", float(number))
        incident.mark_phase("seen_s", float(number))
        self.state.open_incident(incident)
        self.evidence.add(incident)
        await self.state.revise(incident)
        return incident

    async def train(self, incident: Incident) -> None:
        """Commit the first step of the generation after an incident."""
        incident.next_generation = incident.generation + 1
        formed = Generation(
            incident.next_generation, Layout(), RankMap.of(()), RestoreSource(RestoreKind.NONE), "rank_exit"
        )
        await self.state.record_first_step(GenerationMonitor(formed, first_step_s=9.0))

    async def revisions(self) -> list[SupervisorEvent]:
        return [event for event in await self.journal.since("", 0, 0) if event.type == "incident"]


ANSWERS = {"n0": 70, "n1": 30}


async def test_evidence_is_uploaded_only_after_training_has_resumed() -> None:
    rig = Rig(Records(), ANSWERS)
    incident = await rig.incident(1)
    await asyncio.sleep(0.05)
    assert rig.nodes.requests == [] and incident.evidence_bytes is None
    await rig.train(incident)
    async with asyncio.timeout(5):
        while len(revisions := await rig.revisions()) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert sorted(rig.nodes.requests) == [(node, "upload_evidence", (1, "i1")) for node in ("n0", "n1")]
    assert revisions[-1].data["evidence_bytes"] == 100
    assert revisions[-1].data["evidence_missing"] == {"gamma": "the node was lost"}


async def test_missing_evidence_is_reported_with_its_reason() -> None:
    silent = AgentLostError("n0", "agent on node n0 did not answer upload_evidence in 30 s")
    full = AgentError("n1", "beta", AgentErrorKind.STORAGE, "no space left")
    rig = Rig(Records(), {"n0": silent, "n1": full, "n2": 0})
    incident = await rig.incident(1)
    await rig.evidence.upload_pending()
    assert incident.evidence_bytes == 0
    assert incident.evidence_missing == {
        "alpha": "agent on node n0 did not answer upload_evidence in 30 s",
        "beta": "no space left",
        "gamma": "its agent died before it uploaded the evidence",
    }


async def test_a_restarted_supervisor_uploads_the_remaining_evidence() -> None:
    records = Records()
    first = Rig(records, ANSWERS)
    await first.incident(1)
    await first.evidence.upload_pending()
    await first.incident(2)
    first.evidence.stop()
    second = Rig(records, ANSWERS)
    past = await second.journal.replay()
    second.state.replay(past)
    assert second.state.incident is not None and second.state.incident.id == "i2", "the open incident"
    second.evidence.replay(past)
    await asyncio.sleep(0.05)
    assert second.nodes.requests == [], "the recovery is still in progress"
    await second.evidence.upload_pending()
    assert sorted(second.nodes.requests) == [(node, "upload_evidence", (2, "i2")) for node in ("n0", "n1")]
    assert second.state.incident.evidence_bytes == 100, "the next revision of the incident has it"


async def test_an_open_incident_is_restored_even_if_an_older_one_was_revised_last() -> None:
    records = Records()
    first = Rig(records, ANSWERS)
    older, newer = await first.incident(1), await first.incident(2)
    older.mark_phase("first_step_s", 9.0)
    await first.state.revise(older)
    first.evidence.stop()
    second = Rig(records, ANSWERS)
    second.state.replay(await second.journal.replay())
    assert second.state.incident is not None and second.state.incident.id == newer.id


async def test_evidence_of_the_oldest_incident_is_removed_for_the_newest() -> None:
    rig = Rig(Records(), ANSWERS)
    incidents = [await rig.incident(number) for number in range(1, MAX_INCIDENTS + 2)]
    await rig.evidence.upload_pending()
    assert [call for call in rig.nodes.requests if call[1] == "remove_evidence"] == [
        ("n0", "remove_evidence", (["i1"],))
    ]
    assert [incident.evidence_bytes for incident in incidents] == [0] + [100] * MAX_INCIDENTS
    assert set(incidents[0].evidence_missing.values()) == {"it was removed in favor of newer incidents"}
