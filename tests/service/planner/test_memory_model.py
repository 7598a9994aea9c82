"""The memory of each pipeline stage follows the formulas."""

from dataclasses import replace

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.memory_model import host_bytes, host_sets, peak_bytes, stage_memory
from regroup.service.planner.types import Plan
from tests.support.inputs.planner_questions import work

C = Constants()
GPT3 = work("gpt3-175b", 1536, 2048)


def test_states_of_a_stage_of_gpt_3_follow_the_formulas() -> None:
    stages = stage_memory(GPT3, Plan(Layout(dp_replicate=16, tp=8, pp=8), 1, "zero1"), C)
    middle = stages[3]
    held = 12 * GPT3.model.layer_parameters / 8
    assert middle.parameters == middle.gradients == 2 * held
    assert middle.optimizer == pytest.approx(12 * held / 16)
    assert middle.logits == 0 < stages[-1].logits
    assert stages[0].parameters > middle.parameters


def test_the_first_stage_of_1f1b_retains_the_most_and_gpipe_retains_all() -> None:
    plan = Plan(Layout(dp_replicate=16, tp=8, pp=8), 1, "zero1")
    activations = [stage.activations for stage in stage_memory(GPT3, plan, C)]
    assert activations == sorted(activations, reverse=True)
    assert stage_memory(GPT3, replace(plan, schedule="gpipe"), C)[0].activations > 4 * activations[0]


def test_the_peak_is_that_of_the_fullest_stage() -> None:
    for layout in (Layout(pp=8, tp=8, dp_replicate=16), Layout(dp_shard=1024)):
        for checkpointing in ("none", "full"):
            plan = Plan(layout, 1, "zero1" if layout.pp > 1 else "fsdp", checkpointing)
            fullest = max(stage.total for stage in stage_memory(GPT3, plan, C))
            assert peak_bytes(GPT3, plan, C) == pytest.approx(fullest)


def test_sharding_and_recomputation_reduce_memory() -> None:
    request = work("llama2-7b", 64, 2048)
    plans = [Plan(Layout(8), 1, "ddp"), Plan(Layout(8), 1, "zero1"), Plan(Layout(dp_shard=8), 1, "fsdp")]
    needs = [peak_bytes(request, plan, C) for plan in plans]
    assert needs == sorted(needs, reverse=True)
    full = replace(plans[-1], checkpointing="full")
    assert peak_bytes(request, full, C) < needs[-1]


def test_a_pipeline_has_unsharded_parameters_and_gradients() -> None:
    request = work("llama2-7b", 64, 2048)
    sharded, piped = (
        stage_memory(request, Plan(layout, 1, "fsdp"), C)[0]
        for layout in (Layout(dp_shard=8), Layout(dp_shard=4, pp=2))
    )
    assert piped.parameters > 3 * sharded.parameters


def test_host_memory_has_two_sets_of_the_own_states_and_two_of_a_mirror() -> None:
    request = work("llama2-7b", 64, 2048)
    plan = Plan(Layout(dp_shard=8), 1, "fsdp")
    assert (host_sets(mirror=False), host_sets(mirror=True)) == (2, 4)
    alone = host_bytes(request, plan, 8, mirror=False)
    assert alone == pytest.approx(2 * 12 * request.model.parameters, rel=0.01)
    assert host_bytes(request, plan, 8, mirror=True) == 2 * alone
    copies = Plan(Layout(dp_replicate=8), 1, "ddp")
    assert host_bytes(request, copies, 8, mirror=False) == pytest.approx(alone), (
        "a shard that ranks share is stored once"
    )


def test_memory_grows_with_the_width_of_the_precision() -> None:
    plan = Plan(Layout(dp_shard=8), 1, "fsdp")
    narrow, single, double = (
        stage_memory(work("llama2-7b", 64, 2048, precision), plan, C)[0] for precision in ("bf16", "fp32", "fp64")
    )
    assert (single.activations, double.activations) == (2 * narrow.activations, 4 * narrow.activations)
    assert narrow.logits < single.logits < double.logits
    assert narrow.buffers < single.buffers < double.buffers
    assert narrow.optimizer == single.optimizer, "the state bytes do not depend on the precision of the work"
