"""Copies of regions against slices of numpy arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.agent.transfer import region_copy
from regroup.workers.state.slices.boxes import Box, Region, region_of


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Box, Box, Box, int]:
    """Return a part, two boxes that contain it, and the bytes of an element."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    around = st.tuples(st.integers(0, 3), st.integers(0, 3))
    part = Box((10,) * len(shape), tuple(shape))
    wholes = []
    for _ in range(2):
        margins = [draw(around) for _ in shape]
        wholes.append(
            Box(
                tuple(10 - before for before, _ in margins),
                tuple(before + extent + after for (before, after), extent in zip(margins, shape, strict=True)),
            )
        )
    return part, *wholes, draw(st.sampled_from((1, 2, 4, 8)))


@given(boxes())
def test_a_box_is_copied_between_any_two_layouts(case: tuple[Box, Box, Box, int]) -> None:
    part, one, other, size = case
    kind = f"u{size}"
    source = np.arange(1, one.size + 1, dtype=np.uint64).astype(kind).reshape(one.shape)
    target, expected = np.zeros(other.shape, kind), np.zeros(other.shape, kind)
    expected[_slices(part, other)] = source[_slices(part, one)]
    region_copy.copy(
        memoryview(source.reshape(-1).view(np.uint8)), region_of(part, one, size),
        memoryview(target.reshape(-1).view(np.uint8)), region_of(part, other, size),
    )  # fmt: skip
    assert (target == expected).all()


def test_regions_are_packed_one_after_the_other_and_back() -> None:
    memory = memoryview(bytearray(range(100)))
    regions = [Region(90, 10), Region(0, 2, (3, 2), (20, 5)), Region(50, 1)]
    packed = memoryview(bytearray(23))
    region_copy.gather(memory, regions, packed)
    assert bytes(packed) == bytes([*range(90, 100), 0, 1, 5, 6, 20, 21, 25, 26, 40, 41, 45, 46, 50])
    back = memoryview(bytearray(100))
    region_copy.scatter(packed, back, regions)
    assert [value for value in back if value] == sorted(value for value in packed if value)
    assert all(back[at] in (0, at) for at in range(100))


def test_regions_outside_of_the_memory_or_with_different_sizes_are_refused() -> None:
    memory, target = memoryview(bytearray(64)), memoryview(bytearray(64))
    for region in (Region(60, 8), Region(0, 8, (9,), (8,)), Region(0, 1, (2,), (64,))):
        with pytest.raises((ValueError, TypeError)):
            region_copy.copy(memory, region, target, Region(0, region.size_bytes))
    with pytest.raises(ValueError, match="cannot copy 8 bytes to a region of 9 bytes"):
        region_copy.copy(memory, Region(0, 8), target, Region(0, 9))


def _slices(part: Box, whole: Box) -> tuple[slice, ...]:
    starts = [inner - outer for inner, outer in zip(part.offset, whole.offset, strict=True)]
    return tuple(slice(start, start + extent) for start, extent in zip(starts, part.shape, strict=True))
