"""Delivery of the project's secrets to agents: before their zygote starts, and again when a value was changed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.sync import SecretValues
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.project_secrets import ProjectSecrets
from regroup.workers.contract.agent_records import AgentStatus
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.supervised_job import SPEC, place

FIRST, SECOND = SecretValues("v1", {"hf-token": "hunter2"}), SecretValues("v2", {"hf-token": "hunter3"})


class Nodes(FakeAgents):
    """Agents that keep the secrets that they receive."""

    def __init__(self) -> None:
        super().__init__()
        self.received: dict[str, list[tuple[str, dict[str, str]]]] = {}
        self.versions: dict[str, str] = {}
        self.lost: set[str] = set()

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        await super().intercept(node_id, method, arguments)
        if node_id in self.lost:
            raise AgentLostError(node_id, "lost")

    def _status(self, node: str) -> AgentStatus:
        return AgentStatus(0, secrets_version=self.versions.get(node, ""))

    def _receive_secrets(self, node: str, version: str, values: dict[str, str]) -> None:
        self.received.setdefault(node, []).append((version, values))
        self.versions[node] = version


class Job:
    def __init__(self, uses: bool = True) -> None:
        secrets = {"HF_TOKEN": {"from_project": "hf-token"}, "OTHER": {"from_env": "OTHER"}} if uses else {}
        self.payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec({**SPEC, "secrets": secrets}).model_dump(mode="json"),
            "nodes": [place(f"node-{n}") for n in range(2)], "layout": {"dp_shard": 2}, "storage_uri": "file:///s",
            "datasets_uri": "file:///d",
        })  # fmt: skip
        self.nodes = Nodes()
        self.phases: list[str] = []
        self.is_waiting = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Start the next supervisor, which has no values."""
        self.secrets = ProjectSecrets(self.payload.spec.project_secrets.values())
        self.gang = Gang(
            self.nodes, self.payload.agent_configs(), self._enter_phase, secrets=self.secrets,
        )  # fmt: skip

    def _enter_phase(self, phase: str, fraction: float | None, message: str) -> None:
        self.phases.append(message)
        self.is_waiting.set()

    async def form(self, number: int) -> None:
        source = RestoreSource(RestoreKind.NONE)
        generation = Generation(number, Layout(dp_shard=2), self.payload.places, source, "start")
        await self.gang.form_ranks(generation, self.payload.join_message())

    def order(self, node: str) -> list[str]:
        return [method for where, method in self.nodes.calls if where == node]


async def test_agents_have_the_values_before_their_zygotes_start() -> None:
    job = Job()
    starting = asyncio.create_task(job.gang.start_agents(5.0))
    await asyncio.wait_for(job.is_waiting.wait(), 5)
    assert not starting.done() and job.phases[0] == "waiting for secrets of the project: hf-token"
    assert "start_zygote" not in job.order("node-0") and job.secrets.is_missing
    job.secrets.receive(FIRST)
    await asyncio.wait_for(starting, 5)
    assert job.nodes.received == {node: [("v1", {"hf-token": "hunter2"})] for node in ("node-0", "node-1")}
    for node in ("node-0", "node-1"):
        assert job.order(node) == ["start", "status", "receive_secrets", "start_zygote"]


async def test_no_start_argument_has_a_value() -> None:
    job = Job()
    job.secrets.receive(FIRST)
    configs = job.payload.agent_configs()
    assert "hunter2" not in repr([job.payload, configs, job.gang, FIRST])
    assert all(config.project_secrets == {} for config in configs.values())


async def test_a_changed_value_reaches_the_next_generation_once() -> None:
    job = Job()
    job.secrets.receive(FIRST)
    await job.gang.start_agents(5.0)
    await job.form(1)
    job.secrets.receive(SECOND)
    job.secrets.receive(None)
    await job.form(2)
    await job.form(3)
    assert [version for version, _ in job.nodes.received["node-1"]] == ["v1", "v2"]
    calls = job.order("node-1")
    assert calls.index("receive_secrets", calls.index("form_ranks")) < calls.index("form_ranks", 6)


async def test_a_restarted_supervisor_adopts_agents_without_waiting() -> None:
    job = Job()
    job.secrets.receive(FIRST)
    await job.gang.start_agents(5.0)
    job.begin()
    assert job.secrets.is_missing
    await asyncio.wait_for(job.gang.start_agents(5.0), 5)
    await asyncio.wait_for(job.form(2), 5)
    assert len(job.nodes.received["node-0"]) == 1, "the agent keeps the values that it has"
    job.secrets.receive(SECOND)
    await job.form(3)
    assert [version for version, _ in job.nodes.received["node-0"]] == ["v1", "v2"]


async def test_a_new_agent_gets_the_values_again() -> None:
    job = Job()
    job.secrets.receive(FIRST)
    await job.gang.start_agents(5.0)
    await job.gang.kill_agents(["node-1"])
    del job.nodes.versions["node-1"]
    await job.gang.start_agents(5.0)
    assert [len(job.nodes.received[node]) for node in ("node-0", "node-1")] == [1, 2]


async def test_an_agent_that_is_lost_at_the_delivery_is_reported() -> None:
    job = Job()
    job.secrets.receive(FIRST)
    await job.gang.start_agents(5.0)
    job.secrets.receive(SECOND)
    job.nodes.lost.add("node-1")
    with pytest.raises(AgentLostError):
        await job.form(1)


async def test_a_job_without_project_secrets_waits_for_nothing() -> None:
    job = Job(uses=False)
    await asyncio.wait_for(job.gang.start_agents(5.0), 5)
    await job.form(1)
    assert job.nodes.received == {} and not job.secrets.is_missing
