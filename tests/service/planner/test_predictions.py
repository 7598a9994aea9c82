"""Predicted and measured figures of a generation."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.planner.capacity import Room, room_of
from regroup.service.planner.constants import FITTED
from regroup.service.planner.predictions import Figures, measured, off, predicted
from regroup.service.policy.placement.demand import Demand
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.auto_layout_specs import auto_json, cpu_nodes, gpu_nodes

CPUS = room_of(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2))


def spec(layout: dict[str, Any], device: str = "cpu", **training: Any) -> JobSpec:
    return parse_spec(auto_json(layout, device=device, micro_batch=2, **training))


def foretold(asked: JobSpec, room: Room = CPUS) -> Figures:
    layout = asked.layout.layout_at(asked.layout.dp.target)
    return predicted(asked, layout, room.cluster(layout.world_size))


def test_a_pipeline_has_a_bubble() -> None:
    assert foretold(spec({"dp": 2})).bubble is None
    assert foretold(spec({"dp": 1, "pp": 2})).bubble == pytest.approx(1 / 9)  # of eight micro-batches
    assert foretold(spec({"dp": 2, "pp": 2})).bubble == pytest.approx(1 / 5)


def test_of_a_gpu_what_torch_gives_out_is_counted_and_of_a_cpu_the_process() -> None:
    gpus = room_of(Demand(1, 1, "cuda", 1), gpu_nodes(1))
    small = foretold(spec({"dp": 2}, "cuda"), gpus).peak_bytes
    assert small is not None and small < 0.1e9 < FITTED.reserved_gb * 1e9
    process = foretold(spec({"dp": 2})).peak_bytes
    assert process is not None and process > 0.5e9


def test_a_device_that_does_not_compute_so_is_no_crash() -> None:
    v100s = room_of(Demand(1, 1, "cuda", 1), gpu_nodes(1, name="V100"))
    with pytest.raises(SpecError, match="bf16"):
        foretold(spec({"dp": 2}, "cuda", precision="bf16"), v100s)


@dataclass
class Row:
    step: int
    duration_s: float | None
    extra: dict[str, float] = field(default_factory=dict[str, float])


def test_medians_without_the_warm_up() -> None:
    rows = [Row(11, 9.0, {"peak_bytes": 900.0, "idle": 0.9}), Row(12, 8.0)]
    assert measured(rows, 10) == Figures(8.5, 900.0, 0.9), "there is nothing better yet"
    rows += [Row(13, 1.0, {"peak_bytes": 5.0, "idle": 0.1}), Row(14, 3.0, {"peak_bytes": 7.0, "idle": 0.3})]
    rows += [Row(15, 1.5, {"peak_bytes": 6.0, "idle": 0.2}), Row(16, None)]
    assert measured(rows, 10) == Figures(1.5, 7.0, 0.2)
    assert measured([], 0) == Figures(None, None, None)


def test_how_far_off() -> None:
    assert off(1.2, 1.0) == pytest.approx(0.2)
    assert off(None, 1.0) is None
    assert off(1.0, None) is None
    assert off(1.0, 0.0) is None
