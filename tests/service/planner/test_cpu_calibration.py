"""Calibration by a probe of CPUs: it recovers simulated constants, and predicts the measured steps."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.hardware import find_device
from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED
from regroup.service.planner.cpu_calibration import calibrate_constants, calibrated_values, measured_costs
from regroup.service.planner.formulas import layer_activation_bytes
from regroup.service.planner.model_shape import Model
from regroup.service.planner.search import search
from regroup.service.planner.time_model import step_cost, step_time
from regroup.service.planner.types import Cluster, Plan, StepCost, Work
from regroup.service.policy.measurements.hardware_overlay import measured_hardware
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.measurements.results import ProbeResult
from tests.support.inputs.probe_output import probe_result

FLOPS, MEMORY, TILE, ATTENTION, PASSES, OVERHEAD_S = 5e10, 8e9, 0.5, 0.4, 6.0, 1e-3
COSTS = {
    "ddp": StepCost(8e-3, 1e-3, 5e-4, 1e-3),
    "fsdp": StepCost(10e-3, 1e-3, 2e-3, 5e-3),
    "tp": StepCost(30e-3, 4e-3, 2e-3, 30e-3),
    "pp": StepCost(12e-3, 3e-3, 1e-3, 2e-3),
}
MODEL = Model(2, 64, 4, 257, ffn=192, gated=True)
WORK = Work(MODEL, 16, 128, "fp32")


def block_s(batch: int, sequence: int, dim: int, heads: int) -> float:
    """Return the seconds of a block by the planner's formulas, with three matrices in the feed-forward."""
    tokens, ffn = batch * sequence, 3 * dim
    ratio = TILE * 2 * FLOPS / MEMORY
    shapes = [(dim, 3 * dim), (dim, dim), (dim, ffn), (dim, ffn), (ffn, dim)]
    products = sum(2 * tokens * k * n * (1 + ratio * (1 / k + 1 / n + 1 / tokens)) for k, n in shapes) / FLOPS
    scores = 4 * sequence * dim * tokens / (FLOPS * ATTENTION)
    kept = 2 * layer_activation_bytes(tokens, dim, heads, sequence, flash=True) / MEMORY * PASSES
    return OVERHEAD_S + 3 * (products + scores + kept)


def step_s(cost: StepCost, layers: int, count: int) -> float:
    return cost.step_s + count * cost.micro_batch_s + layers * (cost.layer_s + count * cost.pass_s)


def result(**changed: Any) -> dict[str, Any]:
    sides = (64, 128, 512)
    ratio = TILE * 2 * FLOPS / MEMORY
    shapes = ((16, 32, 64, 4), (1, 512, 64, 4), (2, 128, 256, 4))
    corners = [(layers, count) for layers in (2, 6) for count in (2, 6)]
    return {
        **probe_result(2),
        "matmuls": [["fp32", 4096, FLOPS], *(["fp32", side, FLOPS / (1 + ratio * 3 / side)] for side in sides)],
        "blocks": [[1, 8, 32, 2, 96, OVERHEAD_S], *([*shape, 3 * shape[2], block_s(*shape)] for shape in shapes)],
        "steps": [
            [kind, layers, count, step_s(each, layers, count)]
            for kind, each in COSTS.items()
            for layers, count in corners
        ],
        "alone_flops": 2 * FLOPS,
        **changed,
    }  # fmt: skip


def probed(**changed: Any) -> ProbeResult:
    return parse_probe_result(result(**changed), [("a", ("",) * 4), ("b", ("",) * 4)], job_id="job_1", time_s=0.0)


def cluster(probe: ProbeResult) -> Cluster:
    cpu = find_device("cpu")
    assert cpu is not None
    there = measured_hardware(cpu, [probe])
    return Cluster(there.device, 4, there.devices_per_node, there.network_bytes_s, there.link, measured_costs(probe))


def test_calibration_recovers_the_simulated_constants() -> None:
    found = calibrate_constants(probed(), FITTED)
    assert (found.matmul, found.hidden, found.slack) == (1.0, 0.0, FITTED.slack)
    assert found.tile == pytest.approx(TILE) and found.attention == pytest.approx(ATTENTION, rel=0.02)
    assert found.passes == pytest.approx(PASSES, rel=0.02)
    costs = measured_costs(probed())
    for kind, cost in COSTS.items():
        assert vars(costs[kind]) == pytest.approx({**vars(cost), "crowding": 2.0})


def test_replaced_constants_are_listed() -> None:
    found = {figure.name: (figure.value, figure.table) for figure in calibrated_values(probed(), FITTED)}
    assert found["attention"] == (pytest.approx(ATTENTION, rel=0.02), FITTED.attention) and "slack" not in found
    assert found["fsdp step s"] == (pytest.approx(10e-3), FITTED.step_s)
    assert calibrated_values(None, FITTED) == ()


def test_without_measured_steps_the_fitted_constants_apply() -> None:
    plain = probed(blocks=[], steps=[], alone_flops=None)
    assert calibrate_constants(plain, FITTED) is FITTED and calibrate_constants(None, FITTED) is FITTED
    assert measured_costs(plain) == measured_costs(None) == {}


def test_noise_never_makes_a_cost_negative() -> None:
    noisy = probed(steps=[["ddp", 2, 2, 0.02], ["ddp", 6, 2, 0.01], ["ddp", 2, 6, 0.05], ["ddp", 6, 6, 0.03]])
    assert all(value >= 0 for value in vars(measured_costs(noisy)["ddp"]).values())
    swift = probed(blocks=[[1, 8, 32, 2, 96, 1e-3], [16, 32, 64, 4, 192, 1.1e-3], [1, 512, 64, 4, 192, 9e-3]])
    found = calibrate_constants(swift, FITTED)
    assert 0 < found.attention <= 1 and found.passes > 0


def test_a_step_is_overhead_plus_computation_and_communication() -> None:
    probe = probed()
    constants, there = calibrate_constants(probe, FITTED), cluster(probe)
    plan = Plan(Layout(dp_shard=4), 4, "fsdp")
    time = step_time(WORK, there, plan, constants)
    cost = COSTS["fsdp"]
    assert time.launch_s == pytest.approx(2 * (cost.pass_s + cost.layer_s))
    assert time.other_s == pytest.approx(cost.step_s + cost.micro_batch_s)
    twice = step_time(replace(WORK, global_batch=32), there, plan, constants)
    assert twice.other_s - time.other_s == pytest.approx(cost.micro_batch_s)
    assert step_time(replace(WORK, precision="bf16"), there, plan, constants).memory_s == time.memory_s / 2


def test_a_search_uses_the_measured_cost_of_each_sharding() -> None:
    there, constants = cluster(probed()), calibrate_constants(probed(), FITTED)
    found = search(WORK, there, constants)
    kinds = {choice.plan.sharding for choice in (*found.best, *found.notable) if choice.plan.layout.pp == 1}
    assert {"ddp", "fsdp"} <= kinds
    for choice in (*found.best, *found.notable):
        assert choice.time == step_time(WORK, there, choice.plan, constants.on(there.device)), choice.plan


def test_ranks_that_share_cores_fill_each_others_bubbles() -> None:
    piped = Plan(Layout(dp_shard=2, pp=2), 4, "fsdp")
    shared, alone = (probed(alone_flops=times * FLOPS) for times in (2, 1))
    assert step_time(WORK, cluster(shared), piped, calibrate_constants(shared, FITTED)).bubble_s == 0
    idle = step_time(WORK, cluster(alone), piped, calibrate_constants(alone, FITTED))
    busy = idle.matmul_s + idle.attention_s + idle.memory_s + idle.pipeline_s
    assert idle.bubble_s == pytest.approx(busy / 2), "two stages, two micro-batches"


LOADED = (8, 64, 96, 6, 256, 384)


@pytest.mark.parametrize("kind", COSTS)
def test_calibration_recovers_the_simulated_stretch(kind: str) -> None:
    layouts = {"ddp": {"dp_replicate": 4}, "fsdp": {"dp_shard": 4}, "tp": {"dp_shard": 2, "tp": 2}}
    plan = Plan(Layout(**layouts.get(kind, {"dp_shard": 2, "pp": 2})), 8, "ddp" if kind == "ddp" else "fsdp")
    batch, sequence, dim, heads, ffn, vocabulary = LOADED
    count = 2 if kind == "pp" else 1
    work = Work(
        Model(4, dim, heads, vocabulary, ffn=ffn, gated=True), count * batch * plan.layout.data_degree, sequence, "fp32"
    )
    plain = probed()
    alone = step_time(work, cluster(plain), plan, calibrate_constants(plain, FITTED))
    empty_s = alone.launch_s + alone.other_s
    seconds = empty_s + 1.4 * (alone.step_s - empty_s)
    probe = probed(loads=[[kind, 4, count, list(LOADED), seconds]])
    assert measured_costs(probe)[kind].stretch == pytest.approx(1.4)
    assert all(cost.stretch == 1.0 for name, cost in measured_costs(probe).items() if name != kind)
    assert step_time(work, cluster(probe), plan, calibrate_constants(probe, FITTED)).step_s == pytest.approx(seconds)
    found = {figure.name: figure.value for figure in calibrated_values(probe, FITTED)}
    assert found[f"{kind} stretch"] == pytest.approx(1.4)


def test_an_impossible_stretch_is_bounded() -> None:
    found = [measured_costs(probed(loads=[["ddp", 4, 1, list(LOADED), s]]))["ddp"].stretch for s in (1e-3, 60.0)]
    assert found == [0.5, 4.0]


def test_tensor_and_pipeline_overheads_add_up() -> None:
    both = step_cost(cluster(probed()), Plan(Layout(tp=2, pp=2), 4, "fsdp"))
    assert both is not None and both.pass_s == pytest.approx((30 + 2 - 5) * 1e-3)
