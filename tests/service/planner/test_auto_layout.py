"""The chosen layout is legal, fits, and respects the fields that the spec sets."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.errors import SpecError
from regroup.service.planner.auto_layout import choose_layout
from regroup.service.planner.capacity import JobCapacity, find_capacity
from regroup.service.planner.constants import FITTED
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.search import search
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.placement.demand import Demand
from tests.support.inputs.auto_layout_specs import LLAMA_7B, SMALL, auto, cpu_nodes, gpu_nodes
from tests.support.inputs.probe_output import probe_result


def capacity(*cores: int) -> JobCapacity:
    return find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(*cores))


def a100s(nodes: int) -> JobCapacity:
    return find_capacity(Demand(1, 1, "cuda", 1), gpu_nodes(nodes))


@settings(max_examples=15)
@given(
    cores=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    heads=st.sampled_from([1, 2, 3, 4]),
    layers=st.integers(1, 5),
    batch=st.sampled_from([1, 4, 6, 12]),
    given_=st.fixed_dictionaries({}, optional={"data_parallel": st.sampled_from(["ddp", "fsdp", "zero2"]),
                                               "sequence_parallel": st.booleans()}),
    precision=st.sampled_from(["fp32", "fp64", "bf16"]),
)  # fmt: skip
def test_the_chosen_layout_is_legal_and_fits(
    cores: list[int], heads: int, layers: int, batch: int, given_: dict[str, Any], precision: str
) -> None:
    model = {"dim": 16 * heads, "layers": layers, "heads": heads, "vocab_size": 264}
    spec, there = auto({"auto": {}, **given_}, model, global_batch=batch, precision=precision), capacity(*cores)
    chosen = choose_layout(spec, there).spec  # choose_layout parses the spec again, with all rules
    assert chosen.layout.auto is None
    assert spec.training is not None and chosen.training is not None
    largest = chosen.ladder[-1]
    assert largest.world_size <= there.total
    assert there.fits(largest.world_size, largest.tp)
    for layout in chosen.ladder:
        need = peak_bytes(
            work_of(chosen), plan_of(chosen, layout), FITTED.on(there.device), state_bytes_of(chosen.training)
        )
        assert need <= there.device.memory_bytes
    for name, value in given_.items():
        assert getattr(chosen.layout, name) == value


@pytest.mark.parametrize(
    ("fsdp_s", "given_", "sharding", "count"),
    [(1.1e-3, {}, "zero2", 3), (1.1e-3, {"data_parallel": "zero1"}, "zero1", 1), (3e-3, {}, "ddp", 3)],
)
def test_a_plan_with_alternatives_is_chosen_for_trials_if_nearly_as_fast(
    fsdp_s: float, given_: dict[str, Any], sharding: str, count: int
) -> None:
    """Trade the fastest prediction, ZeRO-1, which has a single split, for a plan with alternatives."""
    costs = {"ddp": 1e-3, "fsdp": fsdp_s, "tp": 3e-3, "pp": 3e-3}
    steps = [[kind, *at, each * at[0] * at[1]] for kind, each in costs.items() for at in product((2, 6), (2, 6))]
    probe = parse_probe_result(
        {**probe_result(2), "steps": steps}, [("n1", ("",) * 4), ("n2", ("",) * 4)], job_id="job_1", time_s=0.0
    )
    there = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2), [probe])
    chosen = choose_layout(auto({"auto": {"ranks": 4, "refine": "measure"}, **given_}, global_batch=8), there)
    assert chosen.report.plans[0].sharding == "zero1"
    assert (chosen.spec.layout.data_parallel, len(chosen.candidates)) == (sharding, count)
    assert chosen.candidates[0][0] == chosen.spec.layout.layout_at(chosen.spec.layout.dp.target)


def test_the_first_plan_of_the_report_is_chosen() -> None:
    chosen = choose_layout(
        auto(model=LLAMA_7B, device="cuda", global_batch=64, sequence=2048, precision="bf16"), a100s(1)
    )
    best = chosen.report.plans[0]
    assert not best.obstacles
    layout = chosen.spec.layout.layout_at(chosen.spec.layout.dp.target)
    assert layout == best.layout
    assert chosen.spec.training is not None
    assert (chosen.spec.training.micro_batch, chosen.spec.layout.data_parallel) == (best.micro_batch, best.sharding)
    assert chosen.spec.training.activation_checkpointing == best.checkpointing
    assert plan_of(chosen.spec, layout).micro_batches(work_of(chosen.spec)) == best.micro_batches
    assert {"ddp"} <= {lost.kind for lost in chosen.report.lost if not lost.fits}


def test_fields_that_the_spec_sets_are_kept() -> None:
    layout = {"auto": {"ranks": 4}, "tp": 2, "pp": 2, "schedule": "gpipe"}
    chosen = choose_layout(auto(layout, micro_batch=2, activation_checkpointing="full"), capacity(4))
    made, training = chosen.spec.layout, chosen.spec.training
    assert training is not None
    assert (made.tp, made.pp, made.schedule, made.dp.target) == (2, 2, "gpipe", 1)
    assert (training.micro_batch, training.activation_checkpointing) == (2, "full")
    assert chosen.given == (
        "layout.pp", "layout.schedule", "layout.tp", "training.activation_checkpointing", "training.micro_batch",
    )  # fmt: skip
    assert all(each.layout.tp == each.layout.pp == each.micro_batch == 2 for each in chosen.report.plans)


def test_sizes_range_from_the_smallest_that_fits_to_the_whole_cluster() -> None:
    layout = choose_layout(auto(), capacity(2, 2)).spec.layout
    split = layout.tp * layout.pp
    assert (layout.dp.min * split, layout.dp.target * split, layout.dp.max * split) == (split, 4, 4)
    ranged = choose_layout(
        auto({"auto": {"ranks": {"min": 2, "target": 2, "max": 4}}, "tp": 2, "pp": 1}), capacity(2, 2)
    ).spec
    assert (ranged.layout.dp.min, ranged.layout.dp.target, ranged.layout.dp.max) == (1, 1, 2)
    few = choose_layout(auto({"auto": {}, "tp": 1, "pp": 1}), capacity(2, 2), max_ranks=2).spec
    assert few.layout.dp.target == 2
    fields = {"model": LLAMA_7B, "device": "cuda", "global_batch": 64, "sequence": 2048, "precision": "bf16"}
    sharded = choose_layout(auto({"auto": {}, "tp": 1, "pp": 1}, **fields), a100s(2)).spec
    assert 1 < sharded.layout.dp.min < sharded.layout.dp.target == 16, "a seventh of 112 GB does not fit on one"


def test_sizes_whose_groups_fit_no_node_are_omitted() -> None:
    layout = choose_layout(auto({"auto": {}, "tp": 2, "pp": 1}), capacity(3, 3, 3)).spec.layout
    assert (layout.tp, layout.dp.max) == (2, 3)


def test_the_next_smaller_size_is_chosen_if_all_ranks_have_no_legal_layout() -> None:
    chosen = choose_layout(auto({"auto": {}, "tp": 2}), capacity(3, 2)).spec.layout
    assert chosen.tp * chosen.pp * chosen.dp.target == 4


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (auto(model=LLAMA_7B), "layout.auto.ranks", "out of memory: the smallest layout"),
        (auto({"auto": {"ranks": 4}, "tp": 3}), "layout.auto.ranks", "no layout uses all.* set in the spec: layout.tp"),
        (auto({"auto": {"ranks": 7}, "pp": 7}), "layout.auto.ranks", "no layout uses all devices"),
        (auto(activation_checkpointing=3), "training.activation_checkpointing", "supports none, selective and full"),
        (auto({"auto": {"ranks": 2}, "pp": 2}, {**SMALL, "tie_embeddings": True}), "layout.auto.ranks",
         "no layout that fits is legal.*tie_embeddings"),
    ],
)  # fmt: skip
def test_a_spec_without_a_layout_is_refused_with_the_limit(spec: Any, path: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        choose_layout(spec, capacity(2, 2))
    assert refused.value.issues[0].path == path


def test_an_unknown_vocabulary_size_is_refused() -> None:
    spec = auto(model={"dim": 64, "layers": 2, "heads": 2})
    choose_layout(spec, capacity(2))  # a byte tokenizer has a known vocabulary size
    workload = spec.workload.model_copy(
        update={"data": spec.workload.data.model_copy(update={"tokenizer": "/t.json"})}  # pyright: ignore
    )
    with pytest.raises(SpecError, match="set model"):
        choose_layout(spec.model_copy(update={"workload": workload}), capacity(2))


@settings(max_examples=10)
@given(st.sampled_from(["tp", "pp", "dp_shard"]), st.sampled_from([8, 16]))
def test_a_search_with_rejections_equals_a_filtered_search(degree: str, gpus: int) -> None:
    spec, there = auto(model=LLAMA_7B, device="cuda", global_batch=64, sequence=2048, precision="bf16"), a100s(2)
    request, cluster = work_of(spec), there.cluster(gpus)

    def refuses(plan: Any) -> list[str]:
        return [degree] if getattr(plan.layout, degree) > 1 else []

    try:
        quick = search(request, cluster, FITTED, reject=refuses)
    except SpecError:
        assert degree == "dp_shard"  # nothing else fits
        return
    slow = search(request, cluster, FITTED, reject=refuses, cut=False)
    assert quick.best == slow.best
    assert quick.notable == slow.notable
    assert not any(refuses(each.plan) for each in (*quick.best, *quick.notable))


def test_a_node_without_memory_for_snapshots_and_mirrors_is_refused_with_a_remedy() -> None:
    nodes = [replace(node, memory_bytes=100 * 10**9) for node in gpu_nodes(2)]
    short = find_capacity(Demand(1, 1, "cuda", 1), nodes)
    spec = auto({"auto": {"ranks": 16}}, LLAMA_7B, "cuda", global_batch=64, sequence=2048, precision="bf16")
    with pytest.raises(SpecError) as refused:
        choose_layout(spec, short)
    message = str(refused.value)
    assert "of host memory" in message and "the smallest node has 100 GB: set snapshot.mirror: off" in message
    alone = spec.model_copy(update={"snapshot": spec.snapshot.model_copy(update={"mirror": "off"})})
    assert choose_layout(alone, short).spec.layout.auto is None
