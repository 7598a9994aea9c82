"""The layout of a job that leaves it to the planner: what the spec fixes is kept, the rest is the fastest that its own
rules allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.alternatives import splits
from regroup.service.planner.capacity import Room
from regroup.service.planner.explain import Report, explain
from regroup.service.planner.from_spec import kept_of, work_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.search import Found, Limits, search
from regroup.service.planner.types import Plan, Work
from regroup.service.policy.elasticity.layout_trials import MAX_CANDIDATES
from regroup.service.spec.job import JobSpec
from regroup.service.spec.layout import AutoLayout, LayoutSpec, Ranks

_MOST_TRIES = 64
"""Sizes below the wanted one that are looked at where that one has no layout."""
_NEARLY = 1.25
"""Predictions are off by that much: of plans within it, measuring tells which is the fastest."""


@dataclass(frozen=True)
class Chosen:
    """What a spec came to."""

    spec: JobSpec
    """With a layout."""
    report: Report
    """The best plans that the job could run, and why others lost."""
    given: tuple[str, ...]
    """Fields that the spec had fixed."""
    candidates: tuple[tuple[Layout, float], ...] = ()
    """With `refine: measure`, what is to be tried, with the predicted seconds of a step: what the spec says, and the
    best other splits of as many ranks."""


def choose(spec: JobSpec, room: Room, most: int | None = None) -> Chosen:
    """The layout for a spec with `layout.auto`, on the nodes of `room`.

    Args:
        most: ranks that the job may have at most, whatever there is; None: no such limit.

    Raises:
        SpecError: the planner cannot describe the job, or no layout fits or is legal; the issue names what binds.
    """
    assert spec.layout.auto is not None, "there is something to choose"
    work, ranks = work_of(spec), _ranks(spec.layout.auto, room, most)
    limits = _limits(spec, room)
    refused: SpecError | None = None
    for count in _counts(ranks):
        try:
            cluster = room.cluster(count)
            found = search(
                work, cluster, room.constants, limits, refuses=lambda plan: _refuses(spec, plan, ranks, room)
            )
        except SpecError as error:
            refused = refused or error
            continue
        report = explain(work, cluster, found, room.constants, limits)
        if spec.layout.auto.refine == "measure":
            chosen, candidates = _to_measure(spec, work, found, ranks, room)
            return Chosen(chosen, report, _given(spec), candidates)
        return Chosen(_on_ladder(spec, work, found.best[0].plan, ranks, room), report, _given(spec))
    assert refused is not None, "there is one size at least"
    raise SpecError([_said(issue, spec) for issue in refused.issues])


def _to_measure(
    spec: JobSpec, work: Work, found: Found, ranks: Ranks, room: Room
) -> tuple[JobSpec, tuple[tuple[Layout, float], ...]]:
    """The spec with a plan, and what is to be tried: the fastest that leaves another split to try, if it is nearly as
    fast as the fastest of all, else that one. ZeRO-1, for one, can be split in no other way."""
    by_speed = sorted((*found.best, *found.notable), key=lambda choice: choice.order)
    near = [choice.plan for choice in by_speed if choice.time.step_s <= _NEARLY * by_speed[0].time.step_s]
    specs = [_on_ladder(spec, work, plan, ranks, room) for plan in near]
    candidates = [_candidates(each, room) for each in specs]
    at = next((n for n, those in enumerate(candidates) if len(those) > 1), 0)
    return specs[at], candidates[at]


def _candidates(spec: JobSpec, room: Room) -> tuple[tuple[Layout, float], ...]:
    first = spec.layout.layout_at(spec.layout.dp.target)
    found = splits(spec, first.world_size, room)
    return tuple(sorted(found, key=lambda each: each[0] != first)[:MAX_CANDIDATES])


def _ranks(auto: AutoLayout, room: Room, most: int | None) -> Ranks:
    if auto.ranks != "all":
        return auto.ranks
    every = min(room.total, most or room.total)
    return Ranks(min=1, target=every, max=every)


def _counts(ranks: Ranks) -> Iterator[int]:
    yield from range(ranks.target, max(ranks.min - 1, ranks.target - _MOST_TRIES - 1, 0), -1)


def _limits(spec: JobSpec, room: Room) -> Limits:
    """What the spec fixes."""
    layout, training = spec.layout, spec.training
    assert training is not None, "described jobs have one"
    given, also = layout.model_fields_set, training.model_fields_set
    named: dict[str, Any] = {}
    if "data_parallel" in given:
        named["shardings"] = (layout.data_parallel,)
    if "schedule" in given:
        named["schedules"] = ((layout.schedule, 1 if layout.schedule in ("gpipe", "1f1b") else 2),)
    if "activation_checkpointing" in also:
        asked = training.activation_checkpointing
        if asked not in ("none", "selective", "full"):
            say = "the planner weighs none, selective and full; leave it out, or say the layout"
            raise SpecError([FieldIssue("training.activation_checkpointing", say, asked)])
        named["checkpointing"] = (asked,)
    return Limits(
        **named,
        most_tp=max(room.ranks),
        tp=layout.tp if "tp" in given else 0,
        pp=layout.pp if "pp" in given else 0,
        micro_batch=training.micro_batch if "micro_batch" in also else 0,
        sequence_parallel=layout.sequence_parallel,
        kept=kept_of(training),
    )


def _given(spec: JobSpec) -> tuple[str, ...]:
    training = spec.training.model_fields_set if spec.training else set[str]()
    found = [f"layout.{name}" for name in spec.layout.model_fields_set - {"auto"}]
    return tuple(
        sorted(found + [f"training.{name}" for name in training & {"micro_batch", "activation_checkpointing"}])
    )


def _refuses(spec: JobSpec, plan: Plan, ranks: Ranks, room: Room) -> Sequence[str]:
    """Why the job cannot run a plan, or not at all sizes that it may be asked for."""
    layout, data = plan.layout, plan.layout.data_degree
    assert spec.training is not None, "described jobs have one"
    samples, largest = spec.training.global_batch, ranks.max // (layout.tp * layout.pp)
    is_open = "micro_batch" not in spec.training.model_fields_set
    if is_open and samples // plan.micro_batch < min(largest, samples):
        return [f"training.micro_batch: steps of {plan.micro_batch} samples leave nothing for some of {largest} ranks"]
    if not room.holds(layout.world_size, layout.tp):
        return [f"layout.tp: no nodes for {layout.world_size} ranks in whole groups of {layout.tp}"]
    planned = _planned(spec, plan, Ranks(min=data, target=data, max=data))
    training = planned.training
    if training and training.batch != "fixed" and training.global_batch // training.micro_batch % data:
        return [f"training.batch: follows_world needs as many micro-batches on each of {data} data ranks"]
    return planned.violations(data)


def _planned(spec: JobSpec, plan: Plan, dp: Ranks) -> JobSpec:
    """The spec with this plan, unchecked. `dp`: data-parallel degrees."""
    layout, training = spec.layout, spec.training
    assert training is not None, "described jobs have one"
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


def _on_ladder(spec: JobSpec, work: Work, plan: Plan, ranks: Ranks, room: Room) -> JobSpec:
    """The spec with this plan, and the sizes between which it may move: those asked for that are legal and fit."""
    split, target = plan.layout.tp * plan.layout.pp, plan.layout.data_degree
    most = min(ranks.max // split, work.global_batch // plan.micro_batch)
    whole = _planned(spec, plan, Ranks(min=1, target=target, max=max(most, target)))
    limits, legal = _limits(spec, room), dict[int, bool]()
    for layout in whole.ladder:
        if layout.world_size >= ranks.min and room.holds(layout.world_size, layout.tp):
            at = Plan(
                layout,
                layout.micro_batch or plan.micro_batch,
                plan.sharding,
                plan.checkpointing,
                plan.schedule,
                plan.virtual,
            )
            need = peak_bytes(work, at, room.constants.on(room.device), limits.kept)
            legal[layout.data_degree] = need <= room.device.memory_bytes
    fitting = [degree for degree, fits in legal.items() if fits]
    made = _planned(spec, plan, Ranks(min=min(fitting), target=target, max=max(fitting)))
    return JobSpec.model_validate(made.model_dump(mode="json"))


def _said(issue: FieldIssue, spec: JobSpec) -> FieldIssue:
    """An issue of the search's question as one of the spec's."""
    path = {"gpus": "layout.auto.ranks", "gpus_per_node": "layout.auto.ranks"}.get(issue.path, issue.path)
    path = path.replace("model.", "workload.model.", 1) if path.startswith("model.") else path
    path = f"training.{path}" if path in ("global_batch", "sequence", "precision") else path
    fixed = ", ".join(_given(spec))
    return FieldIssue(path, issue.message + (f"; as given: {fixed}" if fixed else ""), issue.value)
