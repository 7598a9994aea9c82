"""Conversion of a spec to the planner's inputs."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.inputs.auto_layout_specs import auto_json


def fixed(layout: dict[str, Any], model: dict[str, Any] | None = None, **training: Any) -> JobSpec:
    """Return a spec with an explicit layout."""
    sizes = {"dim": 64, "layers": 8, "heads": 8, "kv_heads": 2, "vocab_size": 264, **(model or {})}
    return parse_spec(auto_json(layout, sizes, micro_batch=2, **training))


def test_sizes_equal_those_of_the_built_in_transformer() -> None:
    work = work_of(fixed({"dp": 2}))
    per_layer = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 192 + 2 * 64
    assert work.model.parameters == 8 * per_layer + 2 * 264 * 64 + 64
    assert (work.global_batch, work.sequence, work.precision) == (16, 64, "fp32")
    tied = work_of(fixed({"dp": 2}, {"tie_embeddings": True}))
    assert work.model.parameters - tied.model.parameters == 264 * 64


def test_a_layout_becomes_the_plan_that_runs() -> None:
    spec = fixed({"dp": 2, "pp": 2, "schedule": "zbv", "data_parallel": "zero2"})
    plan = plan_of(spec, spec.layout.layout_at(2))
    assert (plan.layout.world_size, plan.sharding, plan.schedule, plan.virtual) == (4, "zero2", "zbv", 2)
    assert plan.micro_batches(work_of(spec)) == 4


@pytest.mark.parametrize(("mode", "share"), [("none", None), ("full", None), (4, 0.75), ("sqrt", pytest.approx(2 / 3))])
def test_the_checkpointing_mode_sets_the_recomputed_share(mode: str | int, share: Any) -> None:
    spec = fixed({"dp": 1}, activation_checkpointing=mode)
    assert plan_of(spec, spec.layout.layout_at(1)).recomputed == share


def test_state_bytes_equal_those_of_the_trainer() -> None:
    def kept(**training: Any) -> float:
        spec = fixed({"dp": 1}, **training)
        assert spec.training is not None
        return state_bytes_of(spec.training).total

    assert (kept(), kept(precision="fp64"), kept(optimizer={"name": "sgd"})) == (16, 32, 12)


IMAGES = {
    "workload": {"kind": "builtin", "model": {"family": "convnet", "classes": 4},
                 "data": {"prepare": {"format": "jsonl", "train": ["/x"], "function": "m:f"}}},
    "training": {"global_batch": 4, "micro_batch": 2, "steps": 4},
    "layout": {"dp": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"workload": {"kind": "script", "entrypoint": "/x.py"}, "training": None, "layout": {"dp": 2}},
         "script workloads"),
        ({"workload": {"kind": "function", "function": "m:f"},
          "training": {"global_batch": 4, "micro_batch": 2, "steps": 4}}, "function workloads"),
        ({"layout": {"dp": 1, "offload": True}}, "offload"),
        (IMAGES, "transformers only"),
    ],
)  # fmt: skip
def test_an_unsupported_spec_is_refused_with_the_reason(changed: dict[str, Any], message: str) -> None:
    whole = {**auto_json({"dp": 1}, micro_batch=2), **changed}
    with pytest.raises(SpecError, match=message):
        work_of(parse_spec({name: value for name, value in whole.items() if value is not None}))
