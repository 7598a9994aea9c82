"""A layout is chosen that the job can run, that fits, and that keeps to what the spec says."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.errors import SpecError
from regroup.service.planner.auto_layout import choose
from regroup.service.planner.capacity import Room, room_of
from regroup.service.planner.constants import FITTED
from regroup.service.planner.from_spec import kept_of, plan_of, work_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.search import search
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.placement.demand import Demand
from tests.support.auto_layout_specs import LLAMA_7B, SMALL, auto, cpu_nodes, gpu_nodes
from tests.support.probe_output import said


def room(*cores: int) -> Room:
    return room_of(Demand(1, 1, "cpu", 1), cpu_nodes(*cores))


def a100s(nodes: int) -> Room:
    return room_of(Demand(1, 1, "cuda", 1), gpu_nodes(nodes))


@settings(max_examples=15, deadline=None)
@given(
    cores=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    heads=st.sampled_from([1, 2, 3, 4]),
    layers=st.integers(1, 5),
    batch=st.sampled_from([1, 4, 6, 12]),
    given_=st.fixed_dictionaries({}, optional={"data_parallel": st.sampled_from(["ddp", "fsdp", "zero2"]),
                                               "sequence_parallel": st.booleans()}),
    precision=st.sampled_from(["fp32", "fp64", "bf16"]),
)  # fmt: skip
def test_whatever_is_chosen_is_legal_and_fits(
    cores: list[int], heads: int, layers: int, batch: int, given_: dict[str, Any], precision: str
) -> None:
    model = {"dim": 16 * heads, "layers": layers, "heads": heads, "vocab_size": 264}
    spec, there = auto({"auto": {}, **given_}, model, global_batch=batch, precision=precision), room(*cores)
    chosen = choose(spec, there).spec  # it is parsed anew: all rules of a spec hold
    assert chosen.layout.auto is None
    assert spec.training is not None and chosen.training is not None
    largest = chosen.ladder[-1]
    assert largest.world_size <= there.total
    assert there.holds(largest.world_size, largest.tp)
    for layout in chosen.ladder:
        need = peak_bytes(work_of(chosen), plan_of(chosen, layout), FITTED.on(there.device), kept_of(chosen.training))
        assert need <= there.device.memory_bytes
    for name, value in given_.items():
        assert getattr(chosen.layout, name) == value


@pytest.mark.parametrize(
    ("fsdp_s", "given_", "sharding", "count"),
    [(1.1e-3, {}, "zero2", 3), (1.1e-3, {"data_parallel": "zero1"}, "zero1", 1), (3e-3, {}, "ddp", 3)],
)
def test_what_is_to_be_measured_leaves_something_to_compare_if_it_costs_little(
    fsdp_s: float, given_: dict[str, Any], sharding: str, count: int
) -> None:
    """ZeRO-1, which is predicted to be the fastest, can be split in one way only."""
    costs = {"ddp": 1e-3, "fsdp": fsdp_s, "tp": 3e-3, "pp": 3e-3}
    steps = [[kind, *at, each * at[0] * at[1]] for kind, each in costs.items() for at in product((2, 6), (2, 6))]
    probe = parse_probe_result(
        {**said(2), "steps": steps}, [("n1", ("",) * 4), ("n2", ("",) * 4)], job_id="job_1", time_s=0.0
    )
    there = room_of(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2), [probe])
    chosen = choose(auto({"auto": {"ranks": 4, "refine": "measure"}, **given_}, global_batch=8), there)
    assert chosen.report.plans[0].sharding == "zero1"
    assert (chosen.spec.layout.data_parallel, len(chosen.candidates)) == (sharding, count)
    assert chosen.candidates[0][0] == chosen.spec.layout.layout_at(chosen.spec.layout.dp.target)


def test_what_runs_is_the_first_of_the_report() -> None:
    chosen = choose(auto(model=LLAMA_7B, device="cuda", global_batch=64, sequence=2048, precision="bf16"), a100s(1))
    best = chosen.report.plans[0]
    assert not best.obstacles
    layout = chosen.spec.layout.layout_at(chosen.spec.layout.dp.target)
    assert layout == best.layout
    assert chosen.spec.training is not None
    assert (chosen.spec.training.micro_batch, chosen.spec.layout.data_parallel) == (best.micro_batch, best.sharding)
    assert chosen.spec.training.activation_checkpointing == best.checkpointing
    assert plan_of(chosen.spec, layout).micro_batches(work_of(chosen.spec)) == best.micro_batches
    assert {"ddp"} <= {lost.kind for lost in chosen.report.lost if not lost.fits}


def test_what_is_given_stays() -> None:
    layout = {"auto": {"ranks": 4}, "tp": 2, "pp": 2, "schedule": "gpipe"}
    chosen = choose(auto(layout, micro_batch=2, activation_checkpointing="full"), room(4))
    made, training = chosen.spec.layout, chosen.spec.training
    assert training is not None
    assert (made.tp, made.pp, made.schedule, made.dp.target) == (2, 2, "gpipe", 1)
    assert (training.micro_batch, training.activation_checkpointing) == (2, "full")
    assert chosen.given == (
        "layout.pp", "layout.schedule", "layout.tp", "training.activation_checkpointing", "training.micro_batch",
    )  # fmt: skip
    assert all(each.layout.tp == each.layout.pp == each.micro_batch == 2 for each in chosen.report.plans)


def test_sizes_go_from_the_smallest_that_fits_to_all_there_is() -> None:
    layout = choose(auto(), room(2, 2)).spec.layout
    split = layout.tp * layout.pp
    assert (layout.dp.min * split, layout.dp.target * split, layout.dp.max * split) == (split, 4, 4)
    ranged = choose(auto({"auto": {"ranks": {"min": 2, "target": 2, "max": 4}}, "tp": 2, "pp": 1}), room(2, 2)).spec
    assert (ranged.layout.dp.min, ranged.layout.dp.target, ranged.layout.dp.max) == (1, 1, 2)
    few = choose(auto({"auto": {}, "tp": 1, "pp": 1}), room(2, 2), most=2).spec
    assert few.layout.dp.target == 2
    asked = {"model": LLAMA_7B, "device": "cuda", "global_batch": 64, "sequence": 2048, "precision": "bf16"}
    sharded = choose(auto({"auto": {}, "tp": 1, "pp": 1}, **asked), a100s(2)).spec
    assert 1 < sharded.layout.dp.min < sharded.layout.dp.target == 16, "a seventh of 112 GB does not fit on one"


def test_sizes_that_no_nodes_hold_in_whole_groups_are_left_out() -> None:
    layout = choose(auto({"auto": {}, "tp": 2, "pp": 1}), room(3, 3, 3)).spec.layout
    assert (layout.tp, layout.dp.max) == (2, 3)


def test_where_all_is_no_size_the_next_smaller_is() -> None:
    chosen = choose(auto({"auto": {}, "tp": 2}), room(3, 2)).spec.layout
    assert chosen.tp * chosen.pp * chosen.dp.target == 4


@pytest.mark.parametrize(
    ("spec", "path", "say"),
    [
        (auto(model=LLAMA_7B), "layout.auto.ranks", "memory binds: the layout that needs least"),
        (auto({"auto": {"ranks": 4}, "tp": 3}), "layout.auto.ranks", "no layout uses all of them.*as given: layout.tp"),
        (auto({"auto": {"ranks": 7}, "pp": 7}), "layout.auto.ranks", "no layout uses all of them"),
        (auto(activation_checkpointing=3), "training.activation_checkpointing", "weighs none, selective and full"),
        (auto({"auto": {"ranks": 2}, "pp": 2}, {**SMALL, "tie_embeddings": True}), "layout.auto.ranks",
         "no layout that fits can be run.*tie_embeddings"),
    ],
)  # fmt: skip
def test_what_has_no_layout_says_what_binds(spec: Any, path: str, say: str) -> None:
    with pytest.raises(SpecError, match=say) as refused:
        choose(spec, room(2, 2))
    assert refused.value.issues[0].path == path


def test_a_vocabulary_that_only_nodes_know_cannot_be_planned() -> None:
    spec = auto(model={"dim": 64, "layers": 2, "heads": 2})
    choose(spec, room(2))  # bytes: everybody knows how many there are
    workload = spec.workload.model_copy(
        update={"data": spec.workload.data.model_copy(update={"tokenizer": "/t.json"})}  # pyright: ignore
    )
    with pytest.raises(SpecError, match="set model"):
        choose(spec.model_copy(update={"workload": workload}), room(2))


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["tp", "pp", "dp_shard"]), st.sampled_from([8, 16]))
def test_refusing_is_leaving_out(degree: str, gpus: int) -> None:
    spec, there = auto(model=LLAMA_7B, device="cuda", global_batch=64, sequence=2048, precision="bf16"), a100s(2)
    asked, cluster = work_of(spec), there.cluster(gpus)

    def refuses(plan: Any) -> list[str]:
        return [degree] if getattr(plan.layout, degree) > 1 else []

    try:
        quick = search(asked, cluster, FITTED, refuses=refuses)
    except SpecError:
        assert degree == "dp_shard"  # nothing else fits
        return
    slow = search(asked, cluster, FITTED, refuses=refuses, cut=False)
    assert quick.best == slow.best
    assert quick.notable == slow.notable
    assert not any(refuses(each.plan) for each in (*quick.best, *quick.notable))
