"""Ticks of mirrored sets: their number is bounded, and they are spread over the whole life of a job."""

import itertools
from typing import Any

import pytest

from regroup.service.store.jobs.mirror_ticks import MirrorTicks, add_tick
from regroup.service.store.rows.records import Lease
from regroup.service.store.rows.story import StepMark
from regroup.service.store.store import Store


def ticks_after(times_s: list[float], most: int) -> MirrorTicks:
    found = MirrorTicks()
    for step, time_s in enumerate(times_s):
        if not found.ticks or time_s >= found.ticks[-1].time_s + found.interval_s:
            found = add_tick(found, StepMark(1, step, time_s), most)
            assert len(found.ticks) <= most
    return found


def test_few_ticks_are_all_kept() -> None:
    assert [each.time_s for each in ticks_after([1.0, 2.0, 2.5], 3).ticks] == [1.0, 2.0, 2.5]


@pytest.mark.parametrize("count", [11, 100, 5000])
def test_many_ticks_are_spread_over_the_whole_time(count: int) -> None:
    found = ticks_after([float(each) for each in range(count)], 10)
    times = [each.time_s for each in found.ticks]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == 0.0 and len(times) >= 4
    assert min(gaps) >= found.interval_s and max(gaps) <= 2 * found.interval_s + 1
    assert count - 1 - times[-1] <= found.interval_s + 1


def test_ticks_of_one_moment_are_thinned_too() -> None:
    assert len(ticks_after([5.0] * 30, 10).ticks) <= 10


async def test_sets_of_a_job_are_recorded_once_and_read_with_its_story(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    assert list((await store.stories.read(job_id, 10)).mirrors) == []
    steps = (4, 4, None, 9)
    events = [emitter.report("mirror", f"mirror:b:{number}", step=step) for number, step in enumerate(steps)]
    for sent in (events, events):  # a supervisor sends again what was not acknowledged
        await store.ingest(lease, job_id, emitter.boot_id, sent, {})
    found = (await store.stories.read(job_id, 10)).mirrors
    assert list(found) == [StepMark(1, 4, events[0].time_s), StepMark(1, 9, events[3].time_s)]
