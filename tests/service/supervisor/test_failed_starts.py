"""Starts that fail are classified and charged, so that no job starts again without end."""

from typing import Any

import pytest

from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.lifecycle import Lifecycle
from regroup.workers.contract.agent_records import AgentErrorKind, NodeDescription
from tests.support.doubles.fake_agents import description
from tests.support.doubles.memory_records import Records
from tests.support.doubles.supervised_job import SPEC, FakeNodes, place


class Starts:
    """The starts of one job, one after the other: each is a new supervisor on new agents."""

    def __init__(self, error: Any) -> None:
        self.error, self.records, self.attempt = error, Records(), -1
        self.nodes = FakeNodes({})

    async def next(self, error: Any = None) -> dict[str, Any]:
        """Run the next start to its end and return the job's last state."""
        self.attempt += 1
        self.nodes = FakeNodes({})
        raised = self.error if error is None else error

        def start_zygote(node: str) -> NodeDescription:
            if node == "node-1" and isinstance(raised, Exception):
                raise raised
            return description(node)

        self.nodes._start_zygote = start_zygote  # type: ignore[method-assign]
        payload = JobConfig.from_json({
            "job_id": "j", "spec": parse_spec(SPEC).model_dump(mode="json"), "layout": {"dp_shard": 2},
            "nodes": [place(f"node-{n}") for n in range(2)], "storage_uri": "file:///s", "datasets_uri": "file:///d",
            "attempt": self.attempt,
        })  # fmt: skip
        journal = Journal(self.records, "j")
        gang = Gang(self.nodes, payload.agent_configs())
        self.nodes.life = Lifecycle(payload, gang, GenerationLog(self.records, "j"), journal)
        await self.nodes.life.run()
        self.events = await journal.since("", 0, 0)
        return next(dict(event.data) for event in reversed(self.events) if event.type == "state")


def failure(kind: AgentErrorKind, message: str = "no") -> AgentError:
    return AgentError("node-1", "n1", kind, message, "Traceback")


@pytest.mark.parametrize(
    "error", [AgentLostError("node-1", "agent on node-1 is gone"), failure(AgentErrorKind.NODE, "the disk is full")]
)
async def test_a_node_that_fails_repeatedly_ends_the_job_within_its_budget(error: Exception) -> None:
    starts = Starts(error)
    budget = parse_spec(SPEC).recovery.budgets.node_loss
    for _ in range(budget):
        state = await starts.next()
        assert (state["state"], state["reason"]) == ("QUEUED", "requeued") and str(error) in state["message"]
        assert [event.data["message"] for event in starts.events if event.data.get("kind") == "start_failed"]
    state = await starts.next()
    assert (state["state"], state["reason"]) == ("FAILED", "budget_exhausted")
    assert f"recovery.budgets.node_loss={budget}" in state["message"] and str(error) in state["message"]


async def test_a_start_that_succeeds_after_failed_ones_trains() -> None:
    starts = Starts(AgentLostError("node-1", "gone"))
    await starts.next()
    assert (await starts.next(error="none"))["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (AgentErrorKind.START, "invalid_input"),
        (AgentErrorKind.ENVIRONMENT, "invalid_input"),
        (AgentErrorKind.BUG, "platform_error"),
    ],
)
async def test_an_error_that_no_other_node_avoids_ends_the_job_at_once(kind: AgentErrorKind, reason: str) -> None:
    state = await Starts(failure(kind, "the environment is too large")).next()
    assert (state["state"], state["reason"]) == ("FAILED", reason)
    assert "the environment is too large (node n1)" in state["message"]
    assert state["error"]["traceback"] == "Traceback"
    assert "\x1b" not in state["message"] and "\n" not in state["message"]


async def test_ranks_that_do_not_start_are_charged_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = failure(AgentErrorKind.NODE, "the limit of processes is reached")

    def form_ranks(*arguments: Any) -> None:
        raise refused

    monkeypatch.setattr(FakeNodes, "_form_ranks", form_ranks)
    state = await Starts("none").next()
    assert (state["state"], state["reason"]) == ("FAILED", "budget_exhausted")
    assert "ranks did not start on node node-1: the limit of processes is reached" in state["message"]
