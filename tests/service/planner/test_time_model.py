"""Step times add up, fall with more devices, and rise with more work."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.time_model import StepTime, core_time, step_time
from regroup.service.planner.types import Plan
from tests.support.inputs.planner_questions import cluster, work

PLAN = Plan(Layout(dp_shard=8), micro_batch=1)


def of(plan: Plan, gpus: int = 8, model: str = "llama2-7b", constants: Constants | None = None) -> StepTime:
    """Return the time of a step of 64 samples on A100s."""
    return step_time(work(model, 64, 2048), cluster("A100", gpus), plan, constants or Constants())


def test_a_step_is_the_sum_of_its_parts_and_slower_than_the_peak() -> None:
    time = of(PLAN)
    assert time.step_s == pytest.approx(sum(vars(time).values()))
    request = work("llama2-7b", 64, 2048)
    ideal_s = request.model.step_flops(64, 2048) / (8 * 312e12)
    assert ideal_s < time.step_s < 3 * ideal_s


def test_recomputation_costs_about_a_third() -> None:
    without, full = of(PLAN), of(replace(PLAN, checkpointing="full"))
    assert 1.2 < full.step_s / without.step_s < 1.36


def test_tensor_parallelism_across_nodes_is_slower() -> None:
    inside = of(Plan(Layout(dp_shard=2, tp=8), 1), 16)
    across = of(Plan(Layout(tp=16), 1), 16)
    assert across.tensor_s > 3 * inside.tensor_s


def test_the_idle_time_of_a_pipeline_follows_the_formula() -> None:
    plain = of(Plan(Layout(pp=8), 1, schedule="1f1b"))
    woven = of(Plan(Layout(pp=8), 1, schedule="interleaved_1f1b", virtual=2))
    busy = plain.step_s - plain.bubble_s - plain.other_s - plain.optimizer_s
    assert plain.bubble_s / busy == pytest.approx(7 / 64, rel=0.01)
    assert woven.bubble_s == pytest.approx(plain.bubble_s / 2, rel=0.05)


def test_the_longest_stage_sets_the_speed_of_the_pipeline() -> None:
    even, uneven = of(Plan(Layout(pp=8), 1)), of(Plan(Layout(pp=7), 1), 7)
    assert uneven.matmul_s > even.matmul_s * 8 / 7


def test_dimensions_that_split_unevenly_are_slower() -> None:
    request = work("gpt3-1.3b", 8, 2048)
    misaligned = replace(request, model=replace(request.model, hidden=2056, head_dim=128))
    sure = replace(Constants(), misaligned=2.0)
    ratio = [
        step_time(each, cluster("A100", 1), Plan(Layout(), 1), sure).matmul_s / each.model.step_flops(8, 2048)
        for each in (request, misaligned)
    ]
    assert ratio[1] / ratio[0] > 1.5


@settings(max_examples=40)
@given(st.sampled_from(["ddp", "zero1", "zero2", "fsdp"]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]))
def test_the_time_of_data_parallelism_is_never_negative(sharding: str, tp: int, pp: int) -> None:
    """Check the assumption of the search's pruning."""
    data = 64 // (tp * pp)
    layout = Layout(dp_shard=data, tp=tp, pp=pp) if sharding in ("zero2", "fsdp") else Layout(data, tp=tp, pp=pp)
    plan = Plan(layout, 1, sharding)  # type: ignore[arg-type]
    request, there = work("llama2-7b", 256, 2048), cluster("A100", 64)
    assert core_time(request, there, plan, Constants()).step_s <= step_time(request, there, plan, Constants()).step_s
