"""Calibration of the planner for CPUs by the results of a probe.

The fitted constants are for GPUs, where kernels are launched in advance. A CPU launches no kernels in advance and
overlaps no communication. The probe measures the overhead of a step with models that have almost no arithmetic. One
larger model shows how much slower arithmetic is inside a step than alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regroup.service.domain.hardware import find_device
from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.formulas import layer_activation_bytes
from regroup.service.planner.model_shape import Model
from regroup.service.planner.time_model import step_time
from regroup.service.planner.types import Cluster, Plan, StepCost, Work
from regroup.service.policy.measurements.hardware_overlay import MeasuredValue, measured_hardware
from regroup.service.policy.measurements.results import MeasuredBlock, MeasuredLoad, MeasuredStep, ProbeResult

_WIDTH = 2.0
"""Bytes of 32-bit values relative to the 16-bit values that the formulas count."""
_MIN_CONSTANT = 1e-3
_MIN_STRETCH, _MAX_STRETCH = 0.5, 4.0
"""Bounds of a stretch. Values outside are noise."""


def calibrate_constants(probe: ProbeResult | None, fitted: Constants) -> Constants:
    """Return the constants for the devices that the probe measured. Unmeasured constants stay as fitted."""
    if probe is None or not probe.blocks:
        return fitted
    flops = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    memory = min(node.memory_bytes_s for node in probe.nodes)
    tile = _tile(probe, flops, memory)
    attention, passes = _shares(probe.blocks, flops, memory, tile)
    # Without tensor cores no shape is misaligned; the link speeds are measured; CPU ranks overlap nothing.
    return replace(
        fitted, matmul=1.0, tile=tile, misaligned=1.0, misaligned_heads=1.0, attention=attention, passes=passes,
        inner_link=1.0, outer_link=1.0, hidden=0.0,
    )  # fmt: skip


def measured_costs(probe: ProbeResult | None) -> Mapping[str, StepCost]:
    """Return the overhead of a step by kind of layout; empty if it was not measured."""
    if probe is None or not probe.steps:
        return {}
    usual = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    crowding = max(1.0, (probe.alone_flops or usual) / usual)
    kinds = {each.kind for each in probe.steps}
    plain = {kind: _cost([each for each in probe.steps if each.kind == kind], crowding) for kind in sorted(kinds)}
    return plain | {load.kind: replace(plain[load.kind], stretch=_stretch(load, probe, plain)) for load in probe.loads}


def calibrated_values(probe: ProbeResult | None, fitted: Constants) -> tuple[MeasuredValue, ...]:
    """Return the constants that the probe replaces, and the measured overheads."""
    if probe is None:
        return ()
    now, before = vars(calibrate_constants(probe, fitted)), vars(fitted)
    found = [(name, value, before[name]) for name, value in now.items() if value != before[name]]
    for kind, cost in measured_costs(probe).items():
        found += [(f"{kind} step s", cost.step_s, fitted.step_s), (f"{kind} layer s", cost.pass_s, fitted.launch_s)]
        found.append((f"{kind} stretch", cost.stretch, 1.0))
    return tuple(MeasuredValue(name, value, table, probe.time_s, probe.job_id) for name, value, table in found)


def _cost(steps: Sequence[MeasuredStep], crowding: float) -> StepCost:
    """Solve for the seconds per step, per micro-batch, per layer, and per layer and micro-batch.

    Args:
        steps: measured at two numbers of layers and two numbers of micro-batches: the corners of a rectangle.
        crowding: speed of a rank while the others wait, relative to its usual speed.
    """
    at = {(each.layers, each.micro_batches): each.seconds for each in steps}
    shallow, deep = min(layers for layers, _ in at), max(layers for layers, _ in at)
    few, many = min(count for _, count in at), max(count for _, count in at)
    more, most = deep - shallow, many - few
    both = (at[deep, many] - at[deep, few] - at[shallow, many] + at[shallow, few]) / (more * most)
    both = max(0.0, both)
    layer = max(0.0, (at[deep, few] - at[shallow, few]) / more - both * few)
    micro_batch = max(0.0, (at[shallow, many] - at[shallow, few]) / most - both * shallow)
    step = max(0.0, at[shallow, few] - few * micro_batch - shallow * layer - shallow * few * both)
    return StepCost(step, micro_batch, layer, both, crowding)


def _stretch(load: MeasuredLoad, probe: ProbeResult, costs: Mapping[str, StepCost]) -> float:
    """Return the measured time of the load's step without overhead, relative to its predicted time."""
    device = find_device("cpu")
    assert device is not None
    there, ranks, shape = measured_hardware(device, [probe]), probe.ranks, load.shape
    layout = {
        "ddp": Layout(dp_replicate=ranks),
        "fsdp": Layout(dp_shard=ranks),
        "tp": Layout(dp_shard=max(1, ranks // 2), tp=2),
        "pp": Layout(dp_shard=max(1, ranks // 2), pp=2),
    }[load.kind]
    plan = Plan(layout, shape.batch, "ddp" if load.kind == "ddp" else "fsdp")
    model = Model(load.layers, shape.dim, shape.heads, shape.vocabulary, ffn=shape.ffn, gated=True)
    work = Work(model, load.micro_batches * shape.batch * layout.data_degree, shape.sequence, "fp32")
    cluster = Cluster(there.device, ranks, there.devices_per_node, there.network_bytes_s, there.link, costs)
    time = step_time(work, cluster, plan, calibrate_constants(probe, FITTED).on(there.device))
    empty_s = time.launch_s + time.other_s
    return min(max((load.seconds - empty_s) / (time.step_s - empty_s), _MIN_STRETCH), _MAX_STRETCH)


def _tile(probe: ProbeResult, flops: float, memory: float) -> float:
    """Fit `Constants.tile` to the small matrix multiplications."""
    found = [
        (flops / each.flops - 1) / (flops / memory * _WIDTH * 3 / each.side)
        for each in probe.matmuls
        if each.dtype == "fp32" and each.flops < flops
    ]
    return max(_MIN_CONSTANT, sum(found) / len(found)) if found else _MIN_CONSTANT


def _shares(blocks: Sequence[MeasuredBlock], flops: float, memory: float, tile: float) -> tuple[float, float]:
    """Fit `Constants.attention` and `Constants.passes` to the measured blocks by least squares of relative errors.

    The smallest block is pure overhead, which is subtracted from the others.
    """
    ordered = sorted(blocks, key=lambda each: each.seconds)
    rows: list[tuple[float, float, float]] = []
    for each in ordered[1:]:
        tokens = each.batch * each.sequence
        products = _products_s(each, tokens, flops, memory, tile)
        left = (each.seconds - ordered[0].seconds) / 3 - products
        scores = 4.0 * each.sequence * each.dim * tokens / flops
        stored = _WIDTH * layer_activation_bytes(tokens, each.dim, each.heads, each.sequence, flash=True) / memory
        whole = each.seconds / 3
        rows.append((scores / whole, stored / whole, left / whole))
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] * row[2] for row in rows), sum(row[1] * row[2] for row in rows)
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return 1.0, _MIN_CONSTANT
    slowness, passes = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if passes < 0:  # noise: attribute all of the time to attention
        slowness, passes = a / aa, 0.0
    elif slowness < 0:
        slowness, passes = 0.0, b / bb
    return 1 / max(slowness, 1.0), max(passes, _MIN_CONSTANT)


def _products_s(block: MeasuredBlock, tokens: int, flops: float, memory: float, tile: float) -> float:
    """Return the seconds of the matrix multiplications of one forward."""
    ratio = tile * _WIDTH * flops / memory
    shapes = (
        (block.dim, 3 * block.dim, 1),
        (block.dim, block.dim, 1),
        (block.dim, block.ffn, 2),
        (block.ffn, block.dim, 1),
    )
    return (
        sum(times * 2 * tokens * k * n * (1 + ratio * (1 / k + 1 / n + 1 / tokens)) for k, n, times in shapes) / flops
    )
