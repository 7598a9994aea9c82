"""Automatic layout of a job: the planner keeps the fields that the spec sets, and chooses the fastest values for the
others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.alternatives import list_layouts
from regroup.service.planner.capacity import JobCapacity
from regroup.service.planner.explain import Report, explain
from regroup.service.planner.from_spec import state_bytes_of, work_of
from regroup.service.planner.host_memory import describe_shortage, host_memory_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.search import Limits, SearchResult, search
from regroup.service.planner.types import Plan, Work
from regroup.service.policy.elasticity.layout_trials import MAX_CANDIDATES
from regroup.service.spec.job import JobSpec
from regroup.service.spec.layout import AutoLayout, LayoutSpec, Ranks
from regroup.service.spec.types import MAX_RANKS

_MAX_SMALLER_SIZES = 64
"""Number of smaller sizes to search if the target size has no layout."""
_MAX_PREDICTION_ERROR = 1.25
"""Factor by which predictions can be wrong. Among plans within this factor, only a measurement finds the fastest."""


@dataclass(frozen=True)
class LayoutChoice:
    """Result of the choice for one spec."""

    spec: JobSpec
    """Spec with a layout."""
    report: Report
    """The fastest plans that the job can run, and the reasons against others."""
    given: tuple[str, ...]
    """Fields that the spec sets."""
    candidates: tuple[tuple[Layout, float], ...] = ()
    """With `refine: measure`, the layouts to try, with predicted seconds per step: the layout of `spec`, and the
    fastest others of the same number of ranks."""


def choose_layout(spec: JobSpec, capacity: JobCapacity, max_ranks: int | None = None) -> LayoutChoice:
    """Choose the layout of a spec with `layout.auto` on the nodes of `capacity`.

    Args:
        max_ranks: maximum number of ranks of the job; None for no limit.

    Raises:
        SpecError: the planner cannot model the job, or no layout is legal and fits. The issue names the limit.
    """
    assert spec.layout.auto is not None, "the spec requests an automatic layout"
    work, ranks = work_of(spec), _ranks(spec.layout.auto, capacity, max_ranks)
    limits = _limits(spec, capacity)
    refused: SpecError | None = None
    for count in _counts(ranks):
        try:
            cluster = capacity.cluster(count)
            found = search(
                work, cluster, capacity.constants, limits, reject=lambda plan: _obstacles(spec, plan, ranks, capacity)
            )
        except SpecError as error:
            refused = refused or error
            continue
        report = explain(work, cluster, found, capacity.constants, limits)
        if spec.layout.auto.refine == "measure":
            chosen, candidates = _to_measure(spec, work, found, ranks, capacity)
            return LayoutChoice(chosen, report, _given(spec), candidates)
        return LayoutChoice(_on_ladder(spec, work, found.best[0].plan, ranks, capacity), report, _given(spec))
    assert refused is not None, "there is at least one size"
    raise SpecError([_to_spec_issue(issue, spec) for issue in refused.issues])


def _to_measure(
    spec: JobSpec, work: Work, found: SearchResult, ranks: Ranks, capacity: JobCapacity
) -> tuple[JobSpec, tuple[tuple[Layout, float], ...]]:
    """Return the spec with a plan, and the candidates to try.

    The plan is the fastest one that has an alternative, if its prediction is within the prediction error of the
    fastest of all. Otherwise it is the fastest of all. For example, ZeRO-1 has no alternative.
    """
    by_speed = sorted((*found.best, *found.notable), key=lambda choice: choice.order)
    near = [choice.plan for choice in by_speed if choice.time.step_s <= _MAX_PREDICTION_ERROR * by_speed[0].time.step_s]
    specs = [_on_ladder(spec, work, plan, ranks, capacity) for plan in near]
    candidates = [_candidates(each, capacity) for each in specs]
    index = next((n for n, layouts in enumerate(candidates) if len(layouts) > 1), 0)
    return specs[index], candidates[index]


def _candidates(spec: JobSpec, capacity: JobCapacity) -> tuple[tuple[Layout, float], ...]:
    first = spec.layout.layout_at(spec.layout.dp.target)
    found = list_layouts(spec, first.world_size, capacity)
    return tuple(sorted(found, key=lambda each: each[0] != first)[:MAX_CANDIDATES])


def _ranks(auto: AutoLayout, capacity: JobCapacity, max_ranks: int | None) -> Ranks:
    if auto.ranks != "all":
        return auto.ranks
    count = min(capacity.total, max_ranks or capacity.total, MAX_RANKS)
    return Ranks(min=1, target=count, max=count)


def _counts(ranks: Ranks) -> Iterator[int]:
    yield from range(ranks.target, max(ranks.min - 1, ranks.target - _MAX_SMALLER_SIZES - 1, 0), -1)


def _limits(spec: JobSpec, capacity: JobCapacity) -> Limits:
    """Return the limits of the search from the fields that the spec sets."""
    layout, training = spec.layout, spec.training
    assert training is not None, "a job that the planner models has one"
    given, also = layout.model_fields_set, training.model_fields_set
    fixed: dict[str, Any] = {}
    if "data_parallel" in given:
        fixed["shardings"] = (layout.data_parallel,)
    if "schedule" in given:
        fixed["schedules"] = ((layout.schedule, 1 if layout.schedule in ("gpipe", "1f1b") else 2),)
    if "activation_checkpointing" in also:
        mode = training.activation_checkpointing
        if mode not in ("none", "selective", "full"):
            message = "layout: auto supports none, selective and full; omit this field, or set layout explicitly"
            raise SpecError([FieldIssue("training.activation_checkpointing", message, mode)])
        fixed["checkpointing"] = (mode,)
    return Limits(
        **fixed,
        max_tp=max(capacity.ranks),
        tp=layout.tp if "tp" in given else 0,
        pp=layout.pp if "pp" in given else 0,
        micro_batch=training.micro_batch if "micro_batch" in also else 0,
        sequence_parallel=layout.sequence_parallel,
        states=state_bytes_of(training),
    )


def _given(spec: JobSpec) -> tuple[str, ...]:
    training = spec.training.model_fields_set if spec.training else set[str]()
    found = [f"layout.{name}" for name in spec.layout.model_fields_set - {"auto"}]
    return tuple(
        sorted(found + [f"training.{name}" for name in training & {"micro_batch", "activation_checkpointing"}])
    )


def _obstacles(spec: JobSpec, plan: Plan, ranks: Ranks, capacity: JobCapacity) -> Sequence[str]:
    """Return the reasons why the job cannot run a plan at all requested sizes; empty if it can."""
    layout, data = plan.layout, plan.layout.data_degree
    assert spec.training is not None, "a job that the planner models has one"
    samples, largest = spec.training.global_batch, ranks.max // (layout.tp * layout.pp)
    is_open = "micro_batch" not in spec.training.model_fields_set
    if is_open and samples // plan.micro_batch < min(largest, samples):
        return [
            f"training.micro_batch: with {plan.micro_batch} samples per micro-batch, some of {largest} ranks get none"
        ]
    if not capacity.fits(layout.world_size, layout.tp):
        return [f"layout.tp: the nodes do not fit {layout.world_size} ranks in groups of {layout.tp} on one node"]
    planned = _planned(spec, plan, Ranks(min=data, target=data, max=data))
    training = planned.training
    if training and training.batch != "fixed" and training.global_batch // training.micro_batch % data:
        return [f"training.batch: follows_world needs the same number of micro-batches on each of {data} data ranks"]
    if violations := planned.violations(data):
        return violations
    shortage = describe_shortage(host_memory_of(spec, plan, capacity))
    return [shortage] if shortage else []


def _planned(spec: JobSpec, plan: Plan, dp: Ranks) -> JobSpec:
    """Return the spec with this plan and the data-parallel degrees `dp`, without validation."""
    layout, training = spec.layout, spec.training
    assert training is not None, "a job that the planner models has one"
    hybrid = plan.sharding == "fsdp" and plan.layout.dp_replicate > 1
    chosen = {
        "auto": None,
        "dp": dp.model_dump(),
        "data_parallel": plan.sharding if plan.layout.data_degree > 1 else layout.data_parallel,
        "dp_shard": plan.layout.dp_shard if hybrid else None,
        "tp": plan.layout.tp,
        "pp": plan.layout.pp,
        "schedule": plan.schedule if plan.layout.pp > 1 else layout.schedule,
    }
    also = {"micro_batch": plan.micro_batch, "activation_checkpointing": plan.checkpointing}
    return spec.model_copy(
        update={
            "layout": LayoutSpec.model_validate({**layout.model_dump(), **chosen}),
            "training": training.model_copy(update=also),
        }
    )


def _on_ladder(spec: JobSpec, work: Work, plan: Plan, ranks: Ranks, capacity: JobCapacity) -> JobSpec:
    """Return the spec with this plan and the requested sizes that are legal and fit."""
    split, target = plan.layout.tp * plan.layout.pp, plan.layout.data_degree
    largest = min(ranks.max // split, work.global_batch // plan.micro_batch)
    whole = _planned(spec, plan, Ranks(min=1, target=target, max=max(largest, target)))
    limits, legal = _limits(spec, capacity), dict[int, bool]()
    for layout in whole.ladder:
        if layout.world_size >= ranks.min and capacity.fits(layout.world_size, layout.tp):
            resized = Plan(
                layout,
                layout.micro_batch or plan.micro_batch,
                plan.sharding,
                plan.checkpointing,
                plan.schedule,
                plan.virtual,
            )
            need = peak_bytes(work, resized, capacity.constants.on(capacity.device), limits.states)
            legal[layout.data_degree] = need <= capacity.device.memory_bytes
    fitting = [degree for degree, fits in legal.items() if fits]
    made = _planned(spec, plan, Ranks(min=min(fitting), target=target, max=max(fitting)))
    return JobSpec.model_validate(made.model_dump(mode="json"))


def _to_spec_issue(issue: FieldIssue, spec: JobSpec) -> FieldIssue:
    """Map an issue of the search to a field of the spec."""
    path = {"gpus": "layout.auto.ranks", "gpus_per_node": "layout.auto.ranks"}.get(issue.path, issue.path)
    path = path.replace("model.", "workload.model.", 1) if path.startswith("model.") else path
    path = f"training.{path}" if path in ("global_batch", "sequence", "precision") else path
    fixed = ", ".join(_given(spec))
    return FieldIssue(path, issue.message + (f"; fields set in the spec: {fixed}" if fixed else ""), issue.value)
