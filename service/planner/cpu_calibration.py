"""What a probe says of software on devices that compute what their host computes, too: CPUs.

The fitted constants are of GPUs, to which kernels are launched ahead. On a CPU nothing is launched ahead and nothing is
hidden behind anything. What a step costs there beside its arithmetic is measured whole, with steps of models that have
next to nothing to compute; how much longer the rest takes in a step than by itself, with one that has.
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
"""32 bits are so many times the bytes that formulas count in 16."""
_LEAST = 1e-3
_LEAST_STRETCH, _MOST_STRETCH = 0.5, 4.0
"""What is beyond is noise."""


def constants_of(probe: ProbeResult | None, fitted: Constants) -> Constants:
    """The constants for the devices that the probe has measured: those that it tells nothing of stay."""
    if probe is None or not probe.blocks:
        return fitted
    flops = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    memory = min(node.memory_bytes_s for node in probe.nodes)
    tile = _tile(probe, flops, memory)
    attention, passes = _shares(probe.blocks, flops, memory, tile)
    # Without tensor cores no shape is odd; ports and links are as measured; ranks have no streams of their own.
    return replace(
        fitted, matmul=1.0, tile=tile, misaligned=1.0, odd_heads=1.0, attention=attention, passes=passes,
        inner_link=1.0, outer_link=1.0, hidden=0.0,
    )  # fmt: skip


def costs_of(probe: ProbeResult | None) -> Mapping[str, StepCost]:
    """By kind of layout, what a step costs beside what is computed and sent; nothing where that was not measured."""
    if probe is None or not probe.steps:
        return {}
    usual = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    crowding = max(1.0, (probe.alone_flops or usual) / usual)
    kinds = {each.kind for each in probe.steps}
    plain = {kind: _cost([each for each in probe.steps if each.kind == kind], crowding) for kind in sorted(kinds)}
    return plain | {load.kind: replace(plain[load.kind], stretch=_stretch(load, probe, plain)) for load in probe.loads}


def figures_of(probe: ProbeResult | None, fitted: Constants) -> tuple[MeasuredValue, ...]:
    """Which constants the probe has replaced, and what steps cost by it."""
    if probe is None:
        return ()
    now, before = vars(constants_of(probe, fitted)), vars(fitted)
    found = [(name, value, before[name]) for name, value in now.items() if value != before[name]]
    for kind, cost in costs_of(probe).items():
        found += [(f"{kind} step s", cost.step_s, fitted.step_s), (f"{kind} layer s", cost.pass_s, fitted.launch_s)]
        found.append((f"{kind} stretch", cost.stretch, 1.0))
    return tuple(MeasuredValue(name, value, table, probe.time_s, probe.job_id) for name, value, table in found)


def _cost(steps: Sequence[MeasuredStep], crowding: float) -> StepCost:
    """Seconds of a step, a micro-batch, a layer, and a layer of a micro-batch, from steps at two depths and two counts
    each: the four corners of a rectangle."""
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
    """What the load's step took beyond an empty one, over what that takes by blocks, products and links alone."""
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
    time = step_time(work, cluster, plan, constants_of(probe, FITTED).on(there.device))
    empty_s = time.launch_s + time.other_s
    return min(max((load.seconds - empty_s) / (time.step_s - empty_s), _LEAST_STRETCH), _MOST_STRETCH)


def _tile(probe: ProbeResult, flops: float, memory: float) -> float:
    """Memory traffic of products over that of reading and writing each matrix once, from the small ones."""
    found = [
        (flops / each.flops - 1) / (flops / memory * _WIDTH * 3 / each.side)
        for each in probe.matmuls
        if each.dtype == "fp32" and each.flops < flops
    ]
    return max(_LEAST, sum(found) / len(found)) if found else _LEAST


def _shares(blocks: Sequence[MeasuredBlock], flops: float, memory: float, tile: float) -> tuple[float, float]:
    """Share of the products' speed that attention reaches, and passes through memory of what is kept for backward, by
    which blocks take the time they took: least squares of relative errors. The smallest block is all overhead, which
    the others have as well."""
    ordered = sorted(blocks, key=lambda each: each.seconds)
    rows: list[tuple[float, float, float]] = []
    for each in ordered[1:]:
        tokens = each.batch * each.sequence
        products = _products_s(each, tokens, flops, memory, tile)
        left = (each.seconds - ordered[0].seconds) / 3 - products
        scores = 4.0 * each.sequence * each.dim * tokens / flops
        kept = _WIDTH * layer_activation_bytes(tokens, each.dim, each.heads, each.sequence, flash=True) / memory
        whole = each.seconds / 3
        rows.append((scores / whole, kept / whole, left / whole))
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] * row[2] for row in rows), sum(row[1] * row[2] for row in rows)
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return 1.0, _LEAST
    slowness, passes = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if passes < 0:  # noise: then attention is all there is
        slowness, passes = a / aa, 0.0
    elif slowness < 0:
        slowness, passes = 0.0, b / bb
    return 1 / max(slowness, 1.0), max(passes, _LEAST)


def _products_s(block: MeasuredBlock, tokens: int, flops: float, memory: float, tile: float) -> float:
    """Matrix products of one forward."""
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
