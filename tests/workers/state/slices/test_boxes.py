"""Boxes: intersections, differences, and the bytes that a box occupies in a larger one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.state.slices.boxes import Box, Region, region_of
from tests.workers.state.slices.saved_meshes import part_of, runs


@st.composite
def boxes(draw: st.DrawFn, dimensions: int) -> Box:
    offset = draw(st.lists(st.integers(0, 4), min_size=dimensions, max_size=dimensions))
    shape = draw(st.lists(st.integers(0, 4), min_size=dimensions, max_size=dimensions))
    return Box(tuple(offset), tuple(shape))


def pairs() -> st.SearchStrategy[tuple[Box, Box]]:
    return st.integers(0, 3).flatmap(lambda dimensions: st.tuples(boxes(dimensions), boxes(dimensions)))


def cells(box: Box) -> set[tuple[int, ...]]:
    return {tuple(o + i for o, i in zip(box.offset, place, strict=True)) for place in np.ndindex(*box.shape)}


@given(pairs())
def test_a_box_is_its_common_part_and_the_rest(pair: tuple[Box, Box]) -> None:
    box, other = pair
    common = box.intersect(other)
    assert (cells(common) if common else set()) == cells(box) & cells(other)
    if common:
        rest = box.subtract(common)
        assert sum(each.size for each in rest) == box.size - common.size
        assert set().union(*map(cells, rest)) == cells(box) - cells(common)


@given(st.integers(0, 3).flatmap(boxes), st.integers(0, 9))
def test_pieces_of_a_box_are_small_and_in_order(box: Box, most: int) -> None:
    pieces = list(box.split(most))
    assert [cell for piece in pieces for cell in sorted(cells(piece))] == sorted(cells(box))
    assert all(piece.size <= max(1, most) for piece in pieces)


@given(pairs(), st.sampled_from([1, 2, 8]))
def test_the_region_of_a_part_has_exactly_its_bytes(pair: tuple[Box, Box], item_bytes: int) -> None:
    whole, other = pair
    part = whole.intersect(other)
    if part is None:
        return
    numbers = np.arange(whole.size * item_bytes).reshape(*whole.shape, item_bytes)
    inner = Box(tuple(a - b for a, b in zip(part.offset, whole.offset, strict=True)), part.shape)
    region = region_of(part, whole, item_bytes)
    assert list(runs(region)) == part_of(numbers, inner).flatten().tolist()
    assert (region.size_bytes, region.end) == (part.size * item_bytes, max(runs(region)) + 1)
    assert list(runs(region.shifted(64))) == [64 + at for at in runs(region)]


def test_a_part_without_gaps_is_one_run() -> None:
    whole = Box((0, 0, 0), (4, 3, 2))
    assert region_of(Box((1, 0, 0), (2, 3, 2)), whole, 4) == Region(24, 48)
    assert region_of(Box((1, 0, 0), (2, 2, 2)), whole, 4) == Region(24, 16, (2,), (24,))
    assert region_of(Box((0, 0, 1), (4, 3, 1)), whole, 4) == Region(4, 4, (12,), (8,))
    assert region_of(Box((), ()), Box((), ()), 4) == Region(0, 4)
    assert Region(5, 0).end == 5


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 60)), max_size=3), st.integers(1, 9), st.integers(1, 300))
def test_parts_of_a_region_have_its_bytes_in_order_and_span_little(
    levels: list[tuple[int, int]], run_bytes: int, most: int
) -> None:
    region = Region(7, run_bytes, tuple(count for count, _ in levels), tuple(stride for _, stride in levels))
    parts = list(region.split(most))
    assert [at for part in parts for at in _positions(part)] == _positions(region)
    assert all(not part.counts or part.end - part.offset <= most for part in parts)


def _positions(region: Region) -> list[int]:
    starts = [region.offset]
    for count, stride in zip(region.counts, region.strides_bytes, strict=True):
        starts = [start + number * stride for start in starts for number in range(count)]
    return [start + at for start in starts for at in range(region.run_bytes)]
