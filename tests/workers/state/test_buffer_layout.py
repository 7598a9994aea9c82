"""The layout of a buffer: positions do not depend on the small facts that a buffer also holds."""

from regroup.workers.state.buffer_layout import BufferLayout, Entry, data_start

STEP = 64 * 1024


def layout() -> BufferLayout:
    return BufferLayout(
        [Entry("w", "float32", (4, 2), (2, 0), (2, 2), 16), Entry("b", "float32", (3,), (0,), (3,), 12)]
    )


def test_the_data_keeps_its_position_while_the_facts_grow() -> None:
    plan = layout()
    small, larger = plan.index({}), plan.index({"cursor": "7" * 5000})
    assert len(small) == len(larger) == STEP
    assert len(plan.index({"cursor": "7" * STEP})) == 2 * STEP
    assert small.rstrip().startswith(b'{"tensors":')


def test_a_buffer_has_memory_for_64_kib_of_facts() -> None:
    plan = layout()
    largest = plan.index({"cursor": "7" * (STEP - 100)})
    assert data_start(len(largest)) + plan.data_bytes <= plan.buffer_bytes


def test_tensors_lie_one_after_the_other_at_multiples_of_64_bytes() -> None:
    first, second = layout().entries
    assert (first.start % 64, second.start % 64) == (0, 0)
    assert first.start + first.nbytes <= second.start
    assert second.start + second.nbytes <= layout().data_bytes
