"""Faults of a spec: their location, and the fields that each action needs."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.job_state.rank_config import rank_config


def spec(**fault: Any) -> dict[str, Any]:
    return {
        "name": "f",
        "workload": {"kind": "builtin", "data": {"train": ["/data"]}},
        "training": {"global_batch": 4, "micro_batch": 2, "sequence": 16, "steps": 3},
        "layout": {"dp": 2},
        "faults": [fault],
    }


@pytest.mark.parametrize(
    "fault",
    [
        {"at": {"rank": 1, "step": 1}},
        {"at": {"node": 3, "step": 2, "phase": "optimizer"}, "do": "kill_agent"},
        {"at": {"rank": 0, "step": 1}, "do": "sleep"},
        {"at": {"rank": 0, "step": 1}, "do": "hold_gil", "duration": "90s"},
        {"at": {"rank": 0, "step": 1}, "do": "slow", "factor": 3, "steps": 20},
    ],
)
def test_a_legal_fault_is_part_of_the_rank_configuration(fault: dict[str, Any]) -> None:
    assert rank_config(parse_spec(spec(**fault))).faults[0].do == fault.get("do", "sigkill")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"at": {"step": 1}}, "exactly one of rank and node"),
        ({"at": {"rank": 0, "node": 0, "step": 1}}, "exactly one of rank and node"),
        ({"at": {"rank": 2, "step": 1}}, "below the largest world size"),
        ({"at": {"rank": 0, "step": 1}, "do": "sigkill", "duration": 3}, "duration does not apply to sigkill"),
        ({"at": {"rank": 0, "step": 1}, "do": "cut_traffic", "share": 0.5}, "share does not apply to cut_traffic"),
        ({"at": {"rank": 0, "step": 1}, "do": "lose_traffic", "duration": 3}, "lose_traffic needs share"),
        ({"at": {"rank": 0, "step": 1}, "do": "slow", "factor": 3}, "slow needs steps"),
        ({"at": {"rank": 0, "step": 1}, "do": "slow", "steps": 3}, "slow needs factor"),
    ],
)
def test_an_illegal_fault_is_refused_with_a_message(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(spec(**fault))
    assert message in " ".join(issue.message for issue in refused.value.issues)


def test_a_fault_of_a_snapshot_is_refused_for_a_script() -> None:
    script = {
        "name": "s",
        "workload": {"kind": "script", "module": "x"},
        "faults": [{"at": {"rank": 0, "step": 2}, "do": "flip_snapshot"}],
    }
    with pytest.raises(SpecError) as refused:
        parse_spec(script)
    assert "cannot change losses, parameters, snapshots or checkpoints" in str(refused.value)
