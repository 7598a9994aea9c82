"""Questions that have no answer, and what binds them."""

import math
from collections.abc import Sequence

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.planner.formulas import StateBytes
from regroup.service.planner.types import Cluster, Plan, Work

_GIGA = 1e9


def check(work: Work, cluster: Cluster) -> None:
    """Refuse what makes no sense.

    Raises:
        SpecError: one issue for each field that is wrong.
    """
    model = work.model
    sizes = {
        "model.layers": model.layers,
        "model.hidden": model.hidden,
        "model.heads": model.heads,
        "model.vocabulary": model.vocabulary,
        "global_batch": work.global_batch,
        "sequence": work.sequence,
        "gpus": cluster.gpus,
        "gpus_per_node": cluster.domain,
    }
    issues = [FieldIssue(name, "must be at least 1", value) for name, value in sizes.items() if value < 1]
    rest = {"model.ffn": model.ffn, "model.kv_heads": model.kv_heads, "model.head_dim": model.head_dim}
    issues += [FieldIssue(name, "must not be negative", value) for name, value in rest.items() if value < 0]
    if not issues:
        if not model.head_dim and model.hidden % model.heads:
            issues.append(FieldIssue("model.heads", f"must divide model.hidden = {model.hidden}", model.heads))
        if model.heads % model.groups:
            issues.append(FieldIssue("model.kv_heads", f"must divide model.heads = {model.heads}", model.groups))
        if model.active_experts > model.experts:
            issues.append(
                FieldIssue("model.active_experts", f"at most model.experts = {model.experts}", model.active_experts)
            )
    try:
        cluster.device.flops(work.precision)
    except KeyError as error:
        issues.append(FieldIssue("precision", str(error.args[0]), work.precision))
    if issues:
        raise SpecError(issues)


def no_layout(work: Work, cluster: Cluster, most_tp: int, most_pp: int) -> FieldIssue:
    """No product of legal degrees is the number of devices: name the degree that is used up first."""
    model = work.model
    most = work.global_batch * most_tp * most_pp
    return FieldIssue(
        "gpus",
        f"no layout uses all of them: data parallelism takes at most global_batch = {work.global_batch}, tensor"
        f" parallelism at most {most_tp} (heads {model.heads}, kv_heads {model.groups}, gpus_per_node"
        f" {cluster.domain}), a pipeline at most {most_pp} (layers), {most} together; the degrees must multiply to the"
        f" number of GPUs, and a pipeline needs as many micro-batches on a rank as it has stages: raise global_batch or"
        f" use another number",
        cluster.gpus,
    )


def none_runs(cluster: Cluster, fastest: Plan, why: Sequence[str]) -> FieldIssue:
    """There are plans that fit, but none that can be run: what speaks against the fastest of them."""
    return FieldIssue("gpus", f"no layout that fits can be run: {fastest.layout} is refused: {why[0]}", cluster.gpus)


def said_of(least: Plan) -> str:
    """`micro-batch 1 and full recomputation`: how a plan saves memory."""
    return f"micro-batch {least.micro_batch} and {least.checkpointing} recomputation"


def fits_nowhere(work: Work, cluster: Cluster, least: Plan, need: float, kept: StateBytes) -> FieldIssue:
    """The plan that needs least does not fit: by how much, and how many devices its states alone would take."""
    room = cluster.device.memory_bytes
    states = kept.total * work.model.parameters
    enough = math.ceil(states / (0.8 * room))
    return FieldIssue(
        "gpus",
        f"memory binds: the layout that needs least ({least.layout}, {least.sharding}, {said_of(least)})"
        f" needs {need / _GIGA:.1f} GB on its fullest device, {cluster.device.name} has {room / _GIGA:.0f}; parameters,"
        f" gradients and Adam are {states / _GIGA:,.0f} GB in all, so about {enough} devices are the least",
        cluster.gpus,
    )
