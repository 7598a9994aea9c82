"""Alternative layouts of a job."""

from dataclasses import replace

import pytest

from regroup.service.planner.alternatives import list_layouts
from regroup.service.planner.auto_layout import choose_layout
from regroup.service.planner.capacity import find_capacity
from regroup.service.policy.elasticity.layout_trials import MAX_CANDIDATES
from regroup.service.policy.placement.demand import Demand
from regroup.service.spec.job import parse_spec
from tests.support.inputs.auto_layout_specs import LLAMA_7B, auto_json, cpu_nodes, gpu_nodes

CPUS = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2))


def degrees(**training: object) -> set[tuple[int, int, int]]:
    spec = parse_spec(auto_json({"dp": 4}, micro_batch=4, **training))
    found = list_layouts(spec, 4, CPUS)
    assert [step_s for _, step_s in found] == sorted(step_s for _, step_s in found)
    return {(layout.data_degree, layout.tp, layout.pp) for layout, _ in found}


def test_all_legal_layouts_with_groups_inside_a_node_are_listed() -> None:
    assert degrees() == {(4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)}
    assert degrees(compile="default") == {(4, 1, 1), (2, 1, 2), (1, 1, 4)}


def test_a_batch_that_follows_the_world_size_keeps_its_degree() -> None:
    assert degrees(batch="follows_world") == {(4, 1, 1)}


def test_the_hybrid_sharding_of_a_spec_is_kept() -> None:
    spec = parse_spec(auto_json({"dp": 4, "dp_shard": 2}, micro_batch=4))
    found = {(layout.dp_replicate, layout.dp_shard, layout.tp, layout.pp) for layout, _ in list_layouts(spec, 4, CPUS)}
    assert found == {(2, 2, 1, 1), (1, 2, 2, 1), (1, 2, 1, 2)}


def test_layouts_that_do_not_fit_are_omitted() -> None:
    there = find_capacity(Demand(1, 1, "cuda", 1), gpu_nodes(1))

    def kinds(**layout: object) -> set[str]:
        fields = {"global_batch": 8, "micro_batch": 1, "sequence": 8192, "precision": "bf16"}
        spec = parse_spec(auto_json({"dp": 8, **layout}, LLAMA_7B, "cuda", **fields))
        return {str(layout) for layout, _ in list_layouts(spec, 8, there)}

    assert "dp_shard=8" in kinds()
    assert "dp_replicate=8" not in kinds(data_parallel="ddp") and kinds(data_parallel="ddp")


def test_a_micro_batch_that_does_not_fit_is_reduced() -> None:
    there = find_capacity(Demand(1, 1, "cuda", 1), gpu_nodes(1))

    def found(micro_batch: int) -> dict[str, int | None]:
        fields = {"global_batch": 64, "micro_batch": micro_batch, "sequence": 8192, "precision": "bf16"}
        spec = parse_spec(auto_json({"dp": 8}, LLAMA_7B, "cuda", **fields))
        return {
            str(replace(layout, micro_batch=None)): layout.micro_batch for layout, _ in list_layouts(spec, 8, there)
        }

    assert found(1)["dp_shard=8"] is None
    assert found(8)["dp_shard=8"] in (1, 2, 4), "eight sequences of 8,192 tokens do not fit in addition to the model"


@pytest.mark.parametrize("refine", ["off", "measure"])
def test_candidates_are_the_choice_and_others_of_the_same_size(refine: str) -> None:
    spec = parse_spec(auto_json({"auto": {"ranks": 4, "refine": refine}}))
    chosen = choose_layout(spec, CPUS)
    if refine == "off":
        assert chosen.candidates == ()
        return
    layouts = [layout for layout, _ in chosen.candidates]
    assert layouts[0] == chosen.spec.layout.layout_at(chosen.spec.layout.dp.target)
    assert 2 <= len(set(layouts)) == len(layouts) <= MAX_CANDIDATES
    assert all(layout.world_size == 4 for layout in layouts)
