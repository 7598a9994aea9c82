"""Conversion of a plan to fields of a job spec, and the rules that the plan violates."""

from typing import Any

from regroup.service.planner.types import Plan, Work
from regroup.service.spec.layout import DataParallel, LayoutSpec
from regroup.service.spec.layout_rules import LayoutCandidate, ModelSizes, find_violations

_PRECISION = {"fp8": "float8", "fp4": "float8"}


def to_spec_fields(work: Work, plan: Plan) -> dict[str, Any]:
    """Return the fields of `layout` and `training` of this plan that differ from the defaults."""
    layout = _layout(plan).model_dump(mode="json", exclude_defaults=True, exclude={"dp", "auto"})
    training: dict[str, Any] = {
        "global_batch": work.global_batch,
        "micro_batch": plan.micro_batch,
        "sequence": work.sequence,
        "precision": _PRECISION.get(work.precision, work.precision),
    }
    if plan.checkpointing != "none":
        training["activation_checkpointing"] = plan.checkpointing
    return {"layout": {"dp": plan.layout.data_degree, **layout}, "training": training}


def find_obstacles(work: Work, plan: Plan) -> list[str]:
    """Return the rules of `service/spec/layout_rules.py` that this plan violates; empty if a job can run it."""
    layout, model = _layout(plan), work.model
    if model.experts > 1:
        return ["the built-in transformer has no mixture of experts"]
    choice = LayoutCandidate(
        dp=plan.layout.data_degree,
        stages=layout.stages,
        activation_checkpointing=plan.checkpointing,
        precision=_PRECISION.get(work.precision, work.precision),
        reduce="fp32",
        compile="off",
        sequence=work.sequence,
        micro_batches=work.global_batch // plan.micro_batch,
        model=ModelSizes(
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.groups,
            ffn_dim=model.inner,
            vocab_size=model.vocabulary,
            tie_embeddings=model.tied,
        ),
        **layout.model_dump(exclude={"dp", "auto"}),
    )
    return find_violations(choice)


def _layout(plan: Plan) -> LayoutSpec:
    degrees = plan.layout
    data = DataParallel(min=degrees.data_degree, target=degrees.data_degree, max=degrees.data_degree)
    hybrid = plan.sharding == "fsdp" and degrees.dp_replicate > 1
    return LayoutSpec(
        dp=data,
        data_parallel=plan.sharding,
        dp_shard=degrees.dp_shard if hybrid else None,
        tp=degrees.tp,
        cp=degrees.cp,
        pp=degrees.pp,
        schedule=plan.schedule,
        sequence_parallel=plan.sequence_parallel,
    )
