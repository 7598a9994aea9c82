"""Fields of function workloads. Each error names its field."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.supervisor.job_state.rank_config import rank_config

BUILTIN = {"kind": "builtin", "data": {"train": ["/x"]}}
FUNCTION = {"kind": "function", "function": "package.module:train"}
STEPS = {"global_batch": 4, "micro_batch": 1, "steps": 3}
BACKWARD = {"at": {"rank": 0, "step": 1, "phase": "backward"}}


def parsed(workload: Any, **fields: Any) -> JobSpec:
    return parse_spec({"name": "x", "workload": workload, **fields})


@pytest.mark.parametrize(
    ("workload", "fields", "path", "message"),
    [
        (BUILTIN, {"training": STEPS}, "training", "with training.sequence"),
        (FUNCTION, {}, "training", "required by a function: set steps, global_batch and micro_batch"),
        (FUNCTION, {"training": {**STEPS, "sequence": 8}}, "training", "sequence does not apply to a function"),
        (FUNCTION, {"training": {**STEPS, "optimizer": {"lr": 1}}}, "training", "optimizer does not apply"),
        (FUNCTION, {"training": STEPS, "faults": [BACKWARD]}, "faults", "forward, optimizer, snapshot or checkpoint"),
        (
            FUNCTION,
            {"training": STEPS, "layout": {"dp": 5}},
            "",
            "must not exceed the number of micro-batches per step",
        ),
        (
            {**FUNCTION, "function": "train"},
            {"training": STEPS},
            "workload.function",
            "must have the form 'module:function'",
        ),
        ({**FUNCTION, "args": []}, {"training": STEPS}, "workload.args", "unknown field"),
    ],
)
def test_an_error_names_the_field_that_does_not_fit(workload: Any, fields: Any, path: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        parsed(workload, **fields)
    (issue,) = refused.value.issues
    assert issue.path == path
    assert message in issue.message


def test_a_function_survives_a_round_trip_and_is_part_of_the_rank_config() -> None:
    spec = parsed(FUNCTION, training=STEPS, args={"lr": 0.1})
    assert parse_spec(spec.model_dump(mode="json")) == spec
    config = rank_config(spec)
    assert (config.function, config.args, config.training.steps) == ("package.module:train", {"lr": 0.1}, 3)
