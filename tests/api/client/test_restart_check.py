"""A restart check: the spec of its job, and the verdict from that job's end."""

from typing import Any

import pytest

from regroup.api.client.restart_check import spec_of_check, verdict_of
from regroup.api.schemas.jobs import Job
from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec

FUNCTION: dict[str, Any] = {
    "name": "mine",
    "workload": {"kind": "function", "function": "my_training:train"},
    "training": {"steps": 100, "global_batch": 8, "micro_batch": 2},
}
DIFFERENCE = {"kind": "StateDifference", "message": "after step 3, …", "after_step": 3, "ranks": [1], "parts": ["w"]}


def ended(reason: str, message: str = "", error: dict[str, Any] | None = None) -> Job:
    return Job.model_construct(id="1", name="mine-check", state="FAILED", reason=reason, message=message, error=error)


def test_the_job_is_the_same_except_that_it_ends_after_the_comparison() -> None:
    assert spec_of_check(FUNCTION) == {**FUNCTION, "name": "mine-check", "recovery": {"verify": "restart_only"}}
    recovery = {"budgets": {"rank_exit": 1}, "verify": "off"}
    assert spec_of_check({**FUNCTION, "recovery": recovery})["recovery"] == {**recovery, "verify": "restart_only"}


def test_what_would_disturb_the_first_steps_is_left_out() -> None:
    disturbed = {**FUNCTION, "resume_from": "1@2", "depends_on": ["other"], "faults": [{"do": "sigkill"}]}
    assert spec_of_check(disturbed) == spec_of_check(FUNCTION)


def test_a_parsed_spec_and_a_long_name_are_accepted() -> None:
    spec = spec_of_check(parse_spec({**FUNCTION, "name": "a" * 56 + "-" + "b" * 6}))
    assert spec["name"] == "a" * 56 + "-check"
    assert parse_spec(spec).recovery.verifies_restart


@pytest.mark.parametrize("kind", ["script", "ray_train"])
def test_a_program_that_saves_its_own_state_is_checked_too(kind: str) -> None:
    spec = spec_of_check({"name": "x", "workload": {"kind": kind, "entrypoint": "/train.py"}})
    assert parse_spec(spec).recovery.verify == "restart_only"
    with pytest.raises(SpecError, match="use verify: restart_only, or `regroup run --check`"):
        parse_spec({**spec, "recovery": {"verify": "restart"}})


@pytest.mark.parametrize("invalid", [{"name": "x"}, {**FUNCTION, "recovery": "off"}, {**FUNCTION, "name": 3}])
def test_an_invalid_spec_is_left_to_the_server(invalid: dict[str, Any]) -> None:
    sent = spec_of_check(invalid)
    assert {name: sent[name] for name in invalid if name not in ("name", "recovery")} == {
        name: value for name, value in invalid.items() if name not in ("name", "recovery")
    }
    with pytest.raises(SpecError):
        parse_spec(sent)


def test_the_end_of_the_job_is_the_verdict() -> None:
    equal = verdict_of(ended("restart_verified", "steps 3 to 4 are equal"))
    assert (equal.outcome, equal.is_equal, equal.message) == ("equal", True, "steps 3 to 4 are equal")
    different = verdict_of(ended("state_not_restored", "a restart … Track every object …", DIFFERENCE))
    assert (different.outcome, different.is_equal, different.message) == ("different", False, "after step 3, …")
    assert (different.after_step, different.ranks, different.parts) == (3, (1,), ("w",))


@pytest.mark.parametrize("reason", ["user_error", "restart_not_verified", "cancelled_by_user", "invalid_input"])
def test_any_other_end_makes_no_verdict(reason: str) -> None:
    verdict = verdict_of(ended(reason, "why", {"kind": "ValueError", "message": "m", "step": 1}))
    assert (verdict.outcome, verdict.is_equal, verdict.message, verdict.parts) == ("not_compared", False, "why", ())
    assert verdict_of(ended(reason)).message == f"the job ended as FAILED ({reason})"


def test_a_job_that_is_complete_before_the_comparison_is_named() -> None:
    job = ended("completed").model_copy(update={"state": "SUCCEEDED"})
    verdict = verdict_of(job)
    assert (verdict.outcome, verdict.message[:45]) == ("not_compared", "the program ended before steps were repeated:")
