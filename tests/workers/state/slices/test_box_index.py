"""Search for overlapping boxes."""

from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.state.slices.box_index import BoxIndex
from regroup.workers.state.slices.boxes import Box
from tests.workers.state.slices.test_boxes import boxes, cells


@given(st.integers(0, 2).flatmap(lambda n: st.tuples(st.lists(boxes(n), max_size=6), boxes(n))))
def test_the_boxes_that_overlap_are_found_and_cover_what_they_can(case: tuple[list[Box], Box]) -> None:
    held, requested = case
    index = BoxIndex({box: [number] for number, box in enumerate(held)})
    found = {whole for _, whole, _ in index.overlapping(requested)}
    assert found == {box for box in held if requested.intersect(box)}
    parts, rest = index.cover([requested])
    covered = [cell for common, _, _ in parts for cell in cells(common)]
    union = set[tuple[int, ...]]().union(*(cells(box) for box in held))
    assert len(covered) == len(set(covered)) and set(covered) == cells(requested) & union
    assert set[tuple[int, ...]]().union(*(cells(box) for box in rest)) == cells(requested) - union
    assert all(held[owners[0]] == whole for _, whole, owners in parts)


def test_few_boxes_are_inspected() -> None:
    index = BoxIndex({Box((2 * row, 0), (2, 4)): [row] for row in range(1000)})
    inspected = 0

    class Counted(Box):
        def intersect(self, other: Box) -> Box | None:
            nonlocal inspected
            inspected += 1
            return super().intersect(other)

    assert [owners for _, _, owners in index.overlapping(Counted((99, 1), (4, 1)))] == [[49], [50], [51]]
    assert inspected <= 4
