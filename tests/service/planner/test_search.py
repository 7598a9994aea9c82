"""The search finds the plans that brute force finds, uses all devices, and names the limit if no plan fits."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.errors import SpecError
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.search import Limits, layout_kind, search
from regroup.service.planner.types import Plan
from tests.support.inputs.planner_questions import cluster, work


@settings(max_examples=12)
@given(
    st.sampled_from(["gpt3-1.3b", "llama2-7b", "llama2-13b", "llama3-8b"]),
    st.sampled_from([8, 12, 16, 48, 64]),
    st.sampled_from([48, 96, 512]),
    st.sampled_from(["A100", "A100 40GB", "H100"]),
)
def test_pruning_does_not_change_the_result(model: str, gpus: int, batch: int, device: str) -> None:
    request, there = work(model, batch, 2048), cluster(device, gpus)
    quick = search(request, there, FITTED)
    slow = search(request, there, FITTED, cut=False)
    assert quick.best == slow.best
    assert quick.notable == slow.notable


@pytest.mark.parametrize(
    ("model", "device", "gpus", "batch", "sequence", "precision"),
    [
        ("llama3-70b", "A100", 64, 1024, 4096, "bf16"),
        ("llama-30b", "A100", 32, 512, 2048, "bf16"),
        ("llama2-7b", "A100", 8, 256, 4096, "bf16"),
        ("gpt3-175b", "A100", 1024, 1536, 2048, "bf16"),
        ("gpt3-1.3b", "A100", 1, 64, 2048, "bf16"),
        ("gpt2", "cpu", 2, 8, 1024, "fp32"),
    ],
)
def test_the_cases_of_the_seeds_use_all_devices_and_fit(
    model: str, device: str, gpus: int, batch: int, sequence: int, precision: str
) -> None:
    there = cluster(device, gpus)
    found = search(work(model, batch, sequence, precision), there, FITTED)
    for choice in found.best:
        assert choice.plan.layout.world_size == gpus
        assert choice.peak_bytes <= there.device.memory_bytes
        assert choice.plan.layout.tp <= there.domain
    times = [choice.time.step_s for choice in found.best]
    assert times == sorted(times)


def test_70b_on_64_devices_is_split_along_several_axes() -> None:
    found = search(work("llama3-70b", 1024, 4096), cluster("A100", 64), FITTED)
    assert found.best[0].plan.layout.tp > 1
    assert "ddp" in {layout_kind(each.plan) for each in found.too_large}
    assert all(each.peak_bytes > 80e9 for each in found.too_large)


def test_a_model_that_does_not_fit_is_refused_with_the_missing_memory() -> None:
    with pytest.raises(SpecError, match=r"out of memory: .*needs 3\d\d.* GB .*A100 has 80 GB.* about 44 devices"):
        search(work("gpt3-175b", 64, 2048), cluster("A100", 8), Constants())


def test_a_batch_too_small_for_the_devices_is_refused() -> None:
    with pytest.raises(SpecError, match="no layout uses all devices: data parallelism allows at most global_batch = 4"):
        search(work("llama3-8b", 4, 8192), cluster("H100", 64), FITTED)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("gpus", {"gpus": 0}),
        ("gpus", {"gpus": -8}),
        ("global_batch", {"global_batch": 0}),
        ("sequence", {"sequence": -1}),
        ("model.layers", {"layers": 0}),
        ("model.hidden", {"hidden": -4096}),
        ("model.ffn", {"ffn": -1}),
        ("model.heads", {"heads": 33}),
        ("model.kv_heads", {"kv_heads": 5}),
        ("precision", {"precision": "fp8"}),
    ],
)
def test_invalid_fields_are_refused_by_name(field: str, change: dict[str, object]) -> None:
    request, there = work("llama2-7b", 64, 2048), cluster("A100", 8)
    if "gpus" in change:
        there = replace(there, **change)
    elif change.keys() & {"global_batch", "sequence", "precision"}:
        request = replace(request, **change)
    else:
        request = replace(request, model=replace(request.model, **change))
    with pytest.raises(SpecError) as refused:
        search(request, there, FITTED)
    assert field in [issue.path for issue in refused.value.issues]


def test_tensor_parallelism_never_exceeds_the_number_of_heads() -> None:
    found = search(work("gpt2", 64, 1024), cluster("GB200", 64), FITTED)
    assert all(12 % each.plan.layout.tp == 0 for each in (*found.best, *found.notable))


@pytest.mark.parametrize(
    ("model", "gpus", "most_s"), [("gpt3-175b", 1024, 2.0), ("llama3-405b", 16384, 10.0), ("llama3-405b", 15120, 10.0)]
)
def test_large_clusters_are_searched_in_time(model: str, gpus: int, most_s: float) -> None:
    begun = time.process_time()
    found = search(work(model, gpus * 2, 2048), cluster("H100", gpus), FITTED)
    assert time.process_time() - begun < most_s
    assert isinstance(found.best[0].plan, Plan)


def test_the_search_respects_its_limits() -> None:
    limits = Limits(shardings=("ddp",), max_tp=1, max_pp=1, top=2)
    found = search(work("gpt3-1.3b", 64, 2048), cluster("A100", 8), FITTED, limits)
    assert {layout_kind(each.plan) for each in found.best} == {"ddp"}
    assert len(found.best) == 2
