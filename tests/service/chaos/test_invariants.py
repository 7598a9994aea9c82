"""Invariants: each is valid for a clean record, and each violation is found."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.chaos.fault_plan import FaultPlan, PlannedFault
from regroup.service.chaos.invariants import Expected, check_invariants
from regroup.service.chaos.observation import InjectedFault, Record
from regroup.service.chaos.report import Outcome, render_outcomes

RESTORES_SUPERSEDED_CHECKPOINT = {
    "number": 3, "start_step": 4, "time_s": 15.0, "restore": {"kind": "checkpoint", "step": 4, "generation": 1},
}  # fmt: skip
EXPECTED = Expected(incidents=(frozenset({"rank_exit"}),))
Change = Callable[[dict[str, Any]], Any]


def fields() -> dict[str, Any]:
    """Return the record of a job of four steps that lost a rank after the second."""

    def state(number: int, to: str) -> dict[str, Any]:
        return {"number": number, "type": "state", "data": {"to": to}}

    return {
        "job": {
            "id": "j", "state": "SUCCEEDED", "reason": "completed", "message": "", "created_at": 0.0,
            "finished_at": 20.0, "generation": 2, "digest": {"parameters": "p", "samples": "s"},
        },
        "incidents": [{
            "id": "i", "cause": "rank 1 killed by signal 9", "reason": "rank_exit", "recovery_action": "respawn",
            "steps_lost": 1,
            "durations": {"detect": 0.1, "total": 1.0},
        }],
        "events": [
            state(1, "QUEUED"), state(2, "PLACING"), state(3, "STARTING"), state(4, "RUNNING"),
            {"number": 5, "type": "checkpoint", "data": {}}, state(6, "RECOVERING"), state(7, "RUNNING"),
            state(8, "SUCCEEDED"),
        ],
        "generations": [
            {"number": 1, "start_step": 0, "time_s": 5.0, "restore": {"kind": "none", "step": 0, "generation": 0}},
            {"number": 2, "start_step": 2, "time_s": 10.0, "restore": {"kind": "memory", "step": 2, "generation": 1}},
        ],
        "rows": [
            {"step": 1, "generation": 1, "time_s": 6.0, "loss": 4.0},
            {"step": 2, "generation": 1, "time_s": 7.0, "loss": 3.0},
            {"step": 3, "generation": 2, "time_s": 11.0, "loss": 2.0},
            {"step": 4, "generation": 2, "time_s": 12.0, "loss": 1.0},
        ],
        "checkpoints": [{"step": 2, "generation": 1, "removed_at": None}],
        "ledger": {"exact": True, "steps": 4, "problems": []},
        "seconds": {"queued": 1.0, "productive": 19.0},
        "leftovers": [],
        "fewest_loadable": 1,
    }  # fmt: skip


def record(change: Change = lambda found: None, plan: FaultPlan = FaultPlan("x", 0, 4)) -> Record:  # noqa: B008 - frozen
    found = copy.deepcopy(fields())
    change(found)
    return Record(plan, **found)


def broken(faulty: Record, expected: Expected = EXPECTED) -> set[str]:
    return {finding.invariant for finding in check_invariants(faulty, record(), expected) if not finding.passed}


def test_a_clean_record_breaks_no_invariant() -> None:
    assert broken(record()) == set()
    assert [finding.invariant for finding in check_invariants(record(), record(), EXPECTED)] == [
        f"I{n}" for n in range(1, 9)
    ]


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        ("I1", lambda found: found["ledger"].update(exact=False, problems=["step 2 twice"])),
        ("I1", lambda found: found["ledger"].update(steps=3)),
        ("I1", lambda found: found["rows"].pop(1)),
        ("I2", lambda found: found["job"]["digest"].update(parameters="q")),
        ("I2", lambda found: found["job"]["digest"].update(samples="t")),
        ("I2", lambda found: found["job"]["digest"].update(parameters=None)),
        ("I2", lambda found: found["rows"][2].update(loss=2.0 + 1e-12)),
        ("I2", lambda found: found["rows"][2].update(loss=None)),
        ("I3", lambda found: found["generations"][1].update(start_step=1)),
        ("I3", lambda found: found["rows"][1].update(time_s=10.5)),
        ("I3", lambda found: found["generations"].append(RESTORES_SUPERSEDED_CHECKPOINT)),
        ("I3", lambda found: found["generations"].reverse()),
        ("I4", lambda found: found["leftovers"].append("process 7 (python), by REGROUP_SCRATCH=…j")),
        ("I5", lambda found: found["events"].pop(4)),
        ("I5", lambda found: found["events"][6]["data"].update(to="PLACING")),
        ("I5", lambda found: found["job"].update(state="FAILED", reason="budget_exhausted")),
        ("I5", lambda found: found["incidents"][0].update(recovery_action="")),
        ("I5", lambda found: found["incidents"][0].update(recovery_action="disk")),
        ("I6", lambda found: found["incidents"][0]["durations"].update(detect=1.5)),
        ("I6", lambda found: found["incidents"][0]["durations"].update(total=11.0)),
        ("I6", lambda found: found["incidents"][0].update(steps_lost=2)),
        ("I6", lambda found: found["seconds"].update(productive=18.0)),
        ("I7", lambda found: found["incidents"][0].update(reason="hang")),
        ("I7", lambda found: found["incidents"].clear()),
        ("I7", lambda found: found["incidents"].append(found["incidents"][0])),
        ("I8", lambda found: found.update(fewest_loadable=0)),
        ("I8", lambda found: found.update(fewest_loadable=None)),
    ],
)  # fmt: skip
def test_a_violation_is_found(invariant: str, change: Change) -> None:
    assert invariant in broken(record(change))


def test_a_superseded_checkpoint_may_remain_if_no_generation_restores_it() -> None:
    superseded = {"step": 3, "generation": 1, "removed_at": None}
    assert broken(record(lambda found: found["checkpoints"].append(superseded))) == set()


def test_a_fault_that_was_never_injected_breaks_an_invariant() -> None:
    plan = FaultPlan("x", 0, 4, external_faults=(PlannedFault("kill_server", 2),))
    assert broken(record(plan=plan)) == {"I5"}
    injected = (InjectedFault("kill_server", "killed the server", 8.0, 2, 1),)
    assert broken(replace(record(plan=plan), injected=injected)) == set()


def test_a_resized_run_may_differ_within_the_tolerance() -> None:
    resized = replace(EXPECTED, tolerance=1e-10)

    def differ(by: float) -> Change:
        def change(found: dict[str, Any]) -> None:
            found["job"]["digest"].update(parameters="q")
            found["rows"][2]["loss"] += by

        return change

    assert broken(record(differ(1e-12)), resized) == set()
    assert broken(record(differ(1e-6)), resized) == {"I2"}
    assert broken(record(lambda found: found["job"]["digest"].update(samples="t")), resized) == {"I2"}


def test_further_incidents_can_be_allowed() -> None:
    twice = record(lambda found: found["incidents"].append(found["incidents"][0]))
    assert broken(twice, replace(EXPECTED, allows_more_incidents=True)) == set()


def test_an_injected_straggler_must_be_reported() -> None:
    slow = replace(EXPECTED, is_slow=True)
    assert broken(record(), slow) == {"I6"}
    named = {"number": 9, "type": "stragglers", "data": {"ranks": [{"rank": 1}]}}
    assert broken(record(lambda found: found["events"].append(named)), slow) == set()


def test_a_job_that_must_fail_needs_no_digest() -> None:
    def fail(found: dict[str, Any]) -> None:
        found["job"].update(state="FAILED", reason="user_error", digest={"parameters": None, "samples": None})
        found["events"][-1]["data"]["to"] = "FAILED"
        found["incidents"][0].update(reason="user_error", recovery_action="fail")

    assert broken(record(fail), Expected("FAILED", "user_error", (frozenset({"user_error"}),))) == set()


def test_the_report_lists_broken_invariants() -> None:
    faulty = record(lambda found: found["ledger"].update(exact=False, problems=["step 2 twice"]))
    outcomes = [
        Outcome("1", "clean", "SIGKILL", 0, check_invariants(record(), record(), EXPECTED), record()).to_json(),
        Outcome("2", "torn", "SIGKILL of rank 0", 0, check_invariants(faulty, record(), EXPECTED), faulty).to_json(),
    ]
    text = render_outcomes(outcomes)
    assert "| 1 | SIGKILL | 0.10 s | 1.00 s | 1 | rank_exit, respawn | hold |" in text
    assert "violated: I1 |" in text and "- I1: the ledger is not exact: ['step 2 twice']" in text


def test_a_freeze_counts_from_the_time_of_its_injection() -> None:
    """Correct the times of the supervisor, which counts from when it noticed the fault."""

    def freeze(found: dict[str, Any]) -> None:
        found["incidents"][0]["times"] = {"fault_s": 17.0, "seen_s": 17.0, "first_step_s": 19.0}
        found["injected"] = [InjectedFault("freeze_node", "froze node n", 10.0, 2, 1, 19.0)]

    frozen = record(freeze)
    assert frozen.durations(frozen.incidents[0]) == {"detect": 7.0, "total": 9.0}
    assert "I6" in broken(frozen, replace(EXPECTED, detect_s=6.0, total_s=20.0))
    assert "I6" not in broken(frozen, replace(EXPECTED, detect_s=7.5, total_s=20.0))


def test_a_script_without_samples_is_checked_by_its_steps() -> None:
    without = replace(EXPECTED, has_samples=False)
    assert broken(record(lambda found: found["ledger"].update(exact=False)), without) == set()
    assert broken(record(lambda found: found["rows"].pop(1)), without) == {"I1"}
