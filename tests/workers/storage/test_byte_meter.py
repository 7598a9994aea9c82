"""The meter of bytes that an agent moves: the present rate while it does, and that of the whole afterwards."""

from collections.abc import Callable

import pytest

from regroup.workers.contract.storage_progress import StorageProgress
from regroup.workers.storage.byte_meter import ByteMeter


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Callable[[], float]) -> ByteMeter:
    return ByteMeter(clock)


def test_there_is_no_progress_before_the_total_is_known(meter: ByteMeter) -> None:
    meter.count(10)
    assert meter.progress() is None


def test_the_rate_is_that_of_the_last_seconds(meter: ByteMeter, clock: Clock) -> None:
    meter.expect(1000)
    for done_bytes in (100, 200, 300, 400):
        clock.now_s += 1
        meter.count(100)
        assert meter.progress() == StorageProgress(done_bytes, 1000, 100.0)
    for _ in range(10):
        clock.now_s += 1
        found = meter.progress()
    assert found == StorageProgress(400, 1000, 0.0), "storage delivers nothing any more"


def test_after_the_end_the_progress_stays_as_it_was(meter: ByteMeter, clock: Clock) -> None:
    meter.expect(300)
    clock.now_s += 2
    meter.count(301)
    ended = meter.progress()
    clock.now_s += 50
    assert ended == meter.progress() == StorageProgress(300, 300, 150.0)


def test_a_node_that_reads_nothing_has_ended(meter: ByteMeter) -> None:
    meter.expect(0)
    assert meter.progress() == StorageProgress(0, 0, 0.0)


def test_cancelled_bytes_are_expected_again(meter: ByteMeter, clock: Clock) -> None:
    meter.expect(300)
    clock.now_s += 1
    meter.count(300)
    assert meter.progress() == StorageProgress(300, 300, 300.0)
    meter.count(-200)
    clock.now_s += 1
    assert meter.progress() == StorageProgress(100, 300, 50.0), "the last file must be written once more"
    clock.now_s += 1
    meter.count(200)
    assert meter.progress() == StorageProgress(300, 300, 100.0)


def test_a_rate_is_never_negative(meter: ByteMeter, clock: Clock) -> None:
    meter.expect(300)
    meter.count(200)
    for _ in range(8):
        clock.now_s += 1
        meter.progress()
    meter.count(-200)
    assert meter.progress() == StorageProgress(0, 300, 0.0)
