"""The size ladder: all sizes of a small range; in a large one regular sizes that are close to each other."""

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.ladder import DENSE_DEGREES, describe_nearest_degrees, find_degrees, find_divisors
from regroup.service.spec.types import MAX_RANKS


def script(low: int, target: int, high: int) -> JobSpec:
    layout = {"dp": {"min": low, "target": target, "max": high}}
    return parse_spec({"name": "a", "workload": {"kind": "script", "entrypoint": "/a.py"}, "layout": layout})


def builtin(layout: dict[str, Any], **training: Any) -> JobSpec:
    training = {"global_batch": 64, "micro_batch": 1, "sequence": 16, "steps": 10, **training}
    workload = {"kind": "builtin", "data": {"train": ["x"]}}
    return parse_spec({"name": "a", "workload": workload, "training": training, "layout": layout})


def degrees(spec: JobSpec) -> list[int]:
    return [layout.data_degree for layout in spec.ladder]


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 4), (3, 200), (1000, 1256), (100_000, 100_100)])
def test_a_small_range_has_all_degrees(low: int, high: int) -> None:
    assert find_degrees(low, high) == list(range(low, high + 1))


@given(st.integers(1, MAX_RANKS), st.integers(1, MAX_RANKS), st.integers(1, 64))
def test_degrees_are_few_and_close(one: int, other: int, group: int) -> None:
    low, high = min(one, other), max(one, other)
    found = find_degrees(low, high, group)
    assert len(found) <= 1024
    assert all(low <= degree <= high and degree % group == 0 for degree in found)
    if found:
        assert found[0] - low < group and high - found[-1] < max(group, high / 64 + group)
    for before, after in pairwise(found):
        assert before < after and (after - before == group or after - before <= before / 64)
    dense = range(-(-low // group) * group, min(high, DENSE_DEGREES * group) + 1, group)
    assert [each for each in found if each <= DENSE_DEGREES * group] == list(dense)


@given(st.integers(1, 2**24))
def test_divisors(number: int) -> None:
    found = find_divisors(number)
    assert found == sorted(set(found)) and {1, number} <= set(found)
    assert all(number % each == 0 for each in found)
    if number <= 1000:
        assert found == [each for each in range(1, number + 1) if number % each == 0]


def test_a_large_ladder_has_its_ends_and_the_target() -> None:
    found = degrees(script(1001, 5003, 131_071))
    assert {1001, 5003, 131_071} <= set(found) and len(found) < 1000


def test_a_large_ladder_has_the_sizes_without_padding() -> None:
    found = degrees(builtin({"dp": {"min": 1, "target": 1, "max": 3**9}}, global_batch=3**9))
    assert {3**power for power in range(10)} <= set(found)


def test_the_work_does_not_grow_with_the_range() -> None:
    started_s = time.process_time()
    spec = builtin({"dp": {"min": 1, "target": 1, "max": MAX_RANKS}}, global_batch=2**24, micro_batch=1)
    assert len(spec.ladder) < 2000
    assert len(builtin({"dp": 1}, global_batch=2**24, micro_batch=2**24).ladder) == 1
    assert time.process_time() - started_s < 5


def test_smaller_micro_batches_are_divisors() -> None:
    spec = builtin({"dp": {"min": 1, "target": 1, "max": 64}}, micro_batch=4)
    by_degree = {layout.data_degree: layout.micro_batch for layout in spec.ladder}
    assert (by_degree[16], by_degree[17], by_degree[33]) == (None, 2, 1)


def test_another_split_has_its_own_ladder() -> None:
    spec = builtin({"dp": {"min": 1, "target": 2, "max": 4}})
    assert [layout.tp for layout in spec.with_model_parallel(2, 1).ladder] == []
    assert [layout.pp for layout in spec.with_model_parallel(1, 2).ladder] == [2] * 4
    assert [layout.pp for layout in spec.ladder] == [1] * 4


def test_an_illegal_degree_is_described_with_legal_ones_however_far() -> None:
    rules = builtin({"dp": 1}, global_batch=12).ladder_rules
    started_s = time.process_time()
    assert describe_nearest_degrees(rules, MAX_RANKS) == f"; legal sizes near layout.dp={MAX_RANKS}: 12"
    assert time.process_time() - started_s < 2
