"""Verdicts that are recorded at a server: content, limits, and a server that refuses or does not answer."""

from typing import Any

from regroup import __version__
from regroup.api.chaos.verdicts import VerdictRecorder, verdict_of
from regroup.api.client.client import Client
from regroup.api.schemas.reports.verdicts import ScenarioVerdict
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.invariants import Finding
from regroup.service.chaos.observation import Record
from regroup.service.chaos.report import Outcome

JOB = {"id": "j", "state": "FAILED", "reason": "hang", "message": "", "generation": 1, "digest": None}


def outcome(**fields: Any) -> dict[str, Any]:
    findings = (Finding("I1", "samples", ("step 3 is missing",)), Finding("I2", "result", ()))
    record = Record(FaultPlan("rank-killed", 3, 4), JOB, (), (), (), (), (), {}, {})
    return {**Outcome("1", "rank-killed", "SIGKILL of a rank", 3, findings, record).to_json(), **fields}


def test_a_verdict_has_the_fields_of_the_api() -> None:
    found = verdict_of(outcome(disabled_detectors=["heartbeat"], incidents=["hang"], recovery_actions=[None]))
    assert set(found) == set(ScenarioVerdict.model_fields)
    read = ScenarioVerdict.model_validate(found)
    assert (read.scenario, read.number, read.seed, read.passed) == ("rank-killed", "1", 3, False)
    assert (read.invariants, read.problems) == ({"I1": False, "I2": True}, ["I1: step 3 is missing"])
    assert (read.incidents, read.recovery_actions, read.version) == (["hang"], [None], __version__)


def test_long_outcomes_fit_the_limits_of_the_api() -> None:
    long = outcome(problems=["p" * 5000] * 500, incidents=["hang"] * 5000, recovery_actions=[None] * 5000)
    ScenarioVerdict.model_validate(verdict_of(long))


async def test_verdicts_are_recorded_at_the_server(live: Any) -> None:
    reported: list[str] = []
    await live.client(lambda client: VerdictRecorder(client, reported.append).record(outcome()))
    (found,) = (await live.http.get("/v1/chaos/verdicts")).json()["verdicts"]
    assert found["verdict"]["problems"] == ["I1: step 3 is missing"] and reported == []


async def test_a_refusal_is_reported_and_does_not_end_the_rehearsal(live: Any) -> None:
    reported: list[str] = []
    await live.client(lambda client: VerdictRecorder(client, reported.append).record(outcome(seed=-1)))
    assert (
        reported[0].startswith("the verdict of rank-killed is not recorded at the server: ") and "seed" in reported[0]
    )


def test_a_server_that_does_not_answer_is_reported() -> None:
    reported: list[str] = []
    with Client("http://127.0.0.1:1", token="t", patience_s=0.1) as client:
        VerdictRecorder(client, reported.append).record(outcome())
    assert len(reported) == 1 and "127.0.0.1:1" in reported[0]


def test_without_a_server_nothing_is_recorded() -> None:
    reported: list[str] = []
    VerdictRecorder(None, reported.append).record(outcome())
    assert reported == []
