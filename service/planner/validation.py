"""Validation of plan requests, and issues for requests without a plan."""

import math
from collections.abc import Sequence

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.planner.formulas import StateBytes
from regroup.service.planner.types import Cluster, Plan, Work

_GIGA = 1e9


def check_request(work: Work, cluster: Cluster) -> None:
    """Check the sizes of a request.

    Raises:
        SpecError: it has one issue for each invalid field.
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


def no_layout_issue(work: Work, cluster: Cluster, max_tp: int, max_pp: int) -> FieldIssue:
    """Return the issue that no product of legal degrees is the number of devices, with the limits of each degree."""
    model = work.model
    total = work.global_batch * max_tp * max_pp
    return FieldIssue(
        "gpus",
        f"no layout uses all devices: data parallelism allows at most global_batch = {work.global_batch}, tensor"
        f" parallelism at most {max_tp} (heads {model.heads}, kv_heads {model.groups}, gpus_per_node"
        f" {cluster.domain}), pipeline parallelism at most {max_pp} (layers), {total} in all. The product of the"
        f" degrees must be the number of GPUs, and a pipeline needs at least as many micro-batches per rank as stages."
        f" Raise global_batch, or use another number of GPUs",
        cluster.gpus,
    )


def no_runnable_plan_issue(cluster: Cluster, fastest: Plan, why: Sequence[str]) -> FieldIssue:
    """Return the issue that no plan that fits is legal, with the reason against the fastest."""
    return FieldIssue("gpus", f"no layout that fits is legal; the fastest, {fastest.layout}: {why[0]}", cluster.gpus)


def describe_savings(least: Plan) -> str:
    """Describe how a plan saves memory, for example `micro-batch 1 and full recomputation`."""
    return f"micro-batch {least.micro_batch} and {least.checkpointing} recomputation"


def out_of_memory_issue(work: Work, cluster: Cluster, least: Plan, need: float, states: StateBytes) -> FieldIssue:
    """Return the issue that the smallest plan does not fit, with its memory and a sufficient number of devices."""
    memory_bytes = cluster.device.memory_bytes
    states_bytes = states.total * work.model.parameters
    sufficient = math.ceil(states_bytes / (0.8 * memory_bytes))
    return FieldIssue(
        "gpus",
        f"out of memory: the smallest layout ({least.layout}, {least.sharding}, {describe_savings(least)})"
        f" needs {need / _GIGA:.1f} GB on its fullest device, {cluster.device.name} has {memory_bytes / _GIGA:.0f} GB."
        f" Parameters, gradients and Adam states take {states_bytes / _GIGA:,.0f} GB in all: use at least about"
        f" {sufficient} devices",
        cluster.gpus,
    )
