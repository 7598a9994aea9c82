"""Predicted and measured metrics of a generation."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.planner.capacity import JobCapacity, find_capacity
from regroup.service.planner.constants import FITTED
from regroup.service.planner.predictions import StepMetrics, measure_steps, predict_step, relative_error
from regroup.service.policy.placement.demand import Demand
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes, gpu_nodes

CPUS = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2))


def spec(layout: dict[str, Any], device: str = "cpu", **training: Any) -> JobSpec:
    return parse_spec(auto_json(layout, device=device, micro_batch=2, **training))


def predict(job: JobSpec, capacity: JobCapacity = CPUS) -> StepMetrics:
    layout = job.layout.layout_at(job.layout.dp.target)
    return predict_step(job, layout, capacity.cluster(layout.world_size))


def test_a_pipeline_has_a_bubble() -> None:
    assert predict(spec({"dp": 2})).bubble is None
    assert predict(spec({"dp": 1, "pp": 2})).bubble == pytest.approx(1 / 9)  # of eight micro-batches
    assert predict(spec({"dp": 2, "pp": 2})).bubble == pytest.approx(1 / 5)


def test_memory_is_that_of_torch_on_gpus_and_of_the_process_on_cpus() -> None:
    gpus = find_capacity(Demand(1, 1, "cuda", 1), gpu_nodes(1))
    small = predict(spec({"dp": 2}, "cuda"), gpus).peak_bytes
    assert small is not None and small < 0.1e9 < FITTED.reserved_gb * 1e9
    process = predict(spec({"dp": 2})).peak_bytes
    assert process is not None and process > 0.5e9


def test_an_unsupported_precision_is_refused() -> None:
    v100s = find_capacity(Demand(1, 1, "cuda", 1), gpu_nodes(1, name="V100"))
    with pytest.raises(SpecError, match="bf16"):
        predict(spec({"dp": 2}, "cuda", precision="bf16"), v100s)


@dataclass
class Row:
    step: int
    duration_s: float | None
    extra: dict[str, float] = field(default_factory=dict[str, float])


def test_metrics_are_medians_without_the_warm_up() -> None:
    rows = [Row(11, 9.0, {"peak_bytes": 900.0, "pipeline_idle": 0.9}), Row(12, 8.0)]
    assert measure_steps(rows, 10) == StepMetrics(8.5, 900.0, 0.9), "only warm-up steps exist"
    rows += [
        Row(13, 1.0, {"peak_bytes": 5.0, "pipeline_idle": 0.1}),
        Row(14, 3.0, {"peak_bytes": 7.0, "pipeline_idle": 0.3}),
    ]
    rows += [Row(15, 1.5, {"peak_bytes": 6.0, "pipeline_idle": 0.2}), Row(16, None)]
    assert measure_steps(rows, 10) == StepMetrics(1.5, 7.0, 0.2)
    assert measure_steps([], 0) == StepMetrics(None, None, None)


def test_the_relative_error_is_positive_for_high_predictions() -> None:
    assert relative_error(1.2, 1.0) == pytest.approx(0.2)
    assert relative_error(None, 1.0) is None
    assert relative_error(1.0, None) is None
    assert relative_error(1.0, 0.0) is None
