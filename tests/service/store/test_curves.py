"""Curves of metrics in few points, computed by both databases."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from regroup.service.store.rows.curves import Curves, CurveSelection, Spread
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.tables import steps
from regroup.service.store.store import Store


def lines(found: Curves, metric: str) -> Mapping[int | None, list[tuple[int, Spread]]]:
    """Return the points of a metric: repeated generation, or None → steps and values."""
    result: dict[int | None, list[tuple[int, Spread]]] = {}
    for point in found.points:
        if metric in point.values:
            result.setdefault(point.repeated_generation, []).append((point.step, point.values[metric]))
    return result


async def trained(store: Store, lease: Lease, job_id: str, emitter: Any) -> None:
    """Commit steps 1 to 10 in generation 1, of which generation 2 repeats those above 6, and continue to 12."""
    rows = [emitter.step(1, step, loss=float(step), extra={"mfu": step / 100}) for step in range(2, 11)]
    await store.ingest(lease, job_id, emitter.boot_id, rows, {})
    formed = emitter.generation(2, 6)
    rows = [emitter.step(2, step, loss=100.0 + step, extra={"mfu": None}) for step in range(7, 13)]
    await store.ingest(lease, job_id, emitter.boot_id, [formed, *rows], {})


async def test_committed_and_repeated_steps_are_lines_of_their_own(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    await trained(store, lease, job_id, emitter)
    found = await store.curves.read(job_id, CurveSelection(["loss", "step_s", "tokens_per_s", "mfu"], 100))
    loss = lines(found, "loss")
    assert found.steps_per_point == 1
    assert [step for step, _ in loss[None]] == list(range(1, 13))
    assert [value.mean for _, value in loss[None]][-7:] == [6.0, 107.0, 108.0, 109.0, 110.0, 111.0, 112.0]
    assert loss[1] == [(step, Spread(float(step), float(step), float(step))) for step in range(7, 11)]
    assert lines(found, "step_s")[None][0] == (1, Spread(0.5, 0.5, 0.5))
    assert lines(found, "tokens_per_s")[None][0][1].mean == 128.0
    mfu = lines(found, "mfu")
    assert [step for step, _ in mfu[None]] == [2, 3, 4, 5, 6] and mfu[None][0][1].mean == 0.02
    assert [step for step, _ in mfu[1]] == [7, 8, 9, 10]
    committed = await store.committed_steps(job_id)
    assert [(row.step, row.loss) for row in committed] == [(step, value.mean) for step, value in loss[None]]


async def test_a_point_stands_for_neighbouring_steps(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    await trained(store, lease, job_id, emitter)
    found = await store.curves.read(job_id, CurveSelection(["loss"], 4))
    assert found.steps_per_point == 3
    assert lines(found, "loss")[None] == [
        (3, Spread((2.0 + 2.0 + 3.0) / 3, 2.0, 3.0)),
        (6, Spread(5.0, 4.0, 6.0)),
        (9, Spread(108.0, 107.0, 109.0)),
        (12, Spread(111.0, 110.0, 112.0)),
    ]
    part = await store.curves.read(job_id, CurveSelection(["loss"], 100, from_step=5, to_step=8))
    assert [step for step, _ in lines(part, "loss")[None]] == [5, 6, 7, 8]


async def test_curves_of_a_job_without_such_values_are_empty(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    assert (await store.curves.read(job_id, CurveSelection(["loss"], 10))).points == ()
    await walk(job_id, emitter)
    for selection in (
        CurveSelection(["loss"], 10, from_step=500),
        CurveSelection(["loss"], 10, from_step=9, to_step=3),
        CurveSelection(["no such metric", "a.b[0]'; --", "ü/%s"], 10),
    ):
        assert lines(await store.curves.read(job_id, selection), selection.metrics[0]) == {}


async def test_a_damaged_row_has_no_value(store: Store, lease: Lease, queue, walk, emitter, database_url: str):
    job_id = await queue()
    await walk(job_id, emitter)
    await trained(store, lease, job_id, emitter)
    if database_url.startswith("sqlite"):  # PostgreSQL stores only valid JSON
        async with store._database.write() as connection:
            damage = sa.text("UPDATE steps SET extra = '{broken' WHERE step = 3")
            assert (await connection.execute(damage)).rowcount == 1
    found = await store.curves.read(job_id, CurveSelection(["mfu"], 100))
    assert len(lines(found, "mfu")[None]) >= 4


async def test_a_long_history_costs_few_points(store: Store, queue):
    job_id = await queue()
    row = {"job_id": job_id, "generation": 1, "time_s": 1.0, "duration_s": 0.5, "tokens": 64, "extra": {}}
    many = [{**row, "step": number, "number": number, "loss": float(number)} for number in range(1, 20_001)]
    async with store._database.write() as connection:
        await connection.execute(steps.insert(), many)
    found = await store.curves.read(job_id, CurveSelection(["loss"], 150))
    assert len(found.points) <= 150 and found.points[-1].step == 20_000
    assert found.points[0].values["loss"] == Spread(67.5, 1.0, 134.0)


async def test_samples_of_many_jobs_are_committed_steps_at_equal_distances(
    store: Store, lease: Lease, queue, walk, emitter, make_emitter
):
    first, second, third = [await queue(name) for name in ("one", "two", "three")]
    await walk(first, emitter)
    await trained(store, lease, first, emitter)
    other = make_emitter("boot-2")
    await walk(second, other)
    found = await store.curves.sample([first, second, third], ["loss", "mfu", "validation_loss"], 4)
    one = found[first]
    assert [(each.step, each.values["loss"]) for each in one] == [(1, 2.0), (5, 5.0), (8, 108.0), (12, 112.0)]
    assert [each.values.get("mfu") for each in one] == [None, 0.05, None, None]
    assert all("validation_loss" not in each.values for each in one)
    assert [each.step for each in found[second]] == [1] and found[third] == []
    everything = (await store.curves.sample([first], ["loss"], 100))[first]
    committed = await store.committed_steps(first)
    assert [(each.step, each.values["loss"], each.time_s) for each in everything] == [
        (row.step, row.loss, row.time_s) for row in committed
    ]


async def test_steps_above_the_newest_committed_one_are_not_sampled(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    rows = [emitter.step(1, step) for step in range(2, 11)]
    await store.ingest(lease, job_id, emitter.boot_id, rows, {})
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.generation(2, 6)], {})
    found = (await store.curves.sample([job_id], ["loss"], 100))[job_id]
    assert [each.step for each in found] == [1, 2, 3, 4, 5, 6]
