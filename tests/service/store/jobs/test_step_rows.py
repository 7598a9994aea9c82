"""Committed steps: many change the row of a job as one after the other does, and no step is stored twice."""

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.store.jobs.step_rows import encode_metrics, fold_steps
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.schema.json_values import plain
from regroup.service.store.store import Store
from regroup.workers.contract.messages import StepRow


def step_row(step: int, **fields: Any) -> StepRow:
    usual: dict[str, Any] = {
        "generation": 1, "step": step, "time_s": 100.0 + step, "duration_s": 0.5, "loss": 2.0, "tokens": 64,
        "samples": 4, "samples_hash": 2**63 + step, "learning_rate": 1e-3, "grad_norm": 1.0,
    }  # fmt: skip
    return StepRow(**{**usual, **fields})


@pytest.fixture
async def running(store: Store, queue: Any, walk: Any, emitter: Any) -> JobRow:
    """Return the row of a job in generation 1 that has committed step 1."""
    job_id = await queue()
    await walk(job_id, emitter)
    return await store.job(job_id)


async def test_many_steps_change_the_row_as_one_after_the_other(running: JobRow) -> None:
    rng = random.Random(7)
    steps = [
        (
            rng.choice((1, 1, 1, 0)),
            step_row(
                step,
                duration_s=rng.choice((0.1, 0.7, None, 0.0, math.nan)),
                loss=rng.choice((1.0, None, math.inf)),
                tokens=rng.choice((64, None)),
                validation_loss=rng.choice((None, 3.0, math.nan)),
                stall_s=rng.choice((0.0, 0.1)),
                extra=rng.choice(({}, {"mfu": 0.4, "other": 1.0}, {"mfu": math.nan}, {"peak_bytes": 5.0})),
            ),
        )
        for step in [*range(1, 30), 5, 7, *range(20, 50)]
    ]
    one_by_one = running
    for each in steps:
        one_by_one = replace(one_by_one, **fold_steps(one_by_one, [each]))
    assert replace(running, **fold_steps(running, steps)) == one_by_one
    assert one_by_one.step == 49 and one_by_one.step_duration_s and one_by_one.peak_bytes == 5.0


async def test_late_steps_and_no_steps_change_nothing(running: JobRow) -> None:
    assert fold_steps(running, []) == {}
    assert fold_steps(running, [(1, step_row(1)), (0, step_row(9))]) == {}


async def test_all_columns_are_stored(store: Store, lease: Lease, running: JobRow, emitter: Any) -> None:
    sent = step_row(2, duration_s=math.inf, validation_loss=1.5, stall_s=0.25, extra={"mfu": 0.4, "odd\x00": math.nan})
    data = {name: value for name, value in vars(sent).items() if name not in ("generation", "step")}
    await store.ingest(lease, running.id, emitter.boot_id, [emitter.step(1, 2, **data)], {})
    stored = (await store.step_rows(running.id))[-1]
    assert (stored.number, stored.generation, stored.step, stored.time_s) == (2, 1, 2, 102.0)
    assert (stored.duration_s, stored.loss, stored.validation_loss) == (None, 2.0, 1.5)
    assert (stored.tokens, stored.samples, stored.samples_hash) == (64, 4, 2**63 + 2)
    assert stored.extra == {"mfu": 0.4, "odd\ufffd": None}


async def test_a_step_that_is_newer_than_the_row_shows_is_still_stored_once(
    store: Store, lease: Lease, running: JobRow, make_emitter: Any
) -> None:
    """Report an earlier step after newer rows, as a script may: the row of the job shows none of the newest ones."""
    first = make_emitter("boot-2")
    events = [first.step(1, 2), first.step(1, 3), first.report("resumed", "resumed:1", step=1)]
    assert (await store.ingest(lease, running.id, first.boot_id, events, {})).step == 1
    again = make_emitter("boot-3")
    events = [again.step(1, 3), again.step(1, 4)]
    assert (await store.ingest(lease, running.id, again.boot_id, events, {})).step == 4
    assert [(row.number, row.step) for row in await store.step_rows(running.id)] == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize(
    "metrics",
    [
        {}, {"mfu": 0.41, "peak_bytes": 6.1e10, "small": 5e-324, "large": 1.7976931348623157e308, "zero": -0.0},
        {"a/b": 1.0}, {'quote"': 1.0}, {"größe": 1.0}, {"nul\0": 1.0}, {"count": 3}, {"flag": True}, {"none": None},
        {"nan": math.nan, "rest": 1.0}, {"infinite": -math.inf}, {"nested": {"x": math.nan}},
    ],
)  # fmt: skip
def test_metrics_have_the_text_of_the_encoder(metrics: dict[str, Any]) -> None:
    assert encode_metrics(metrics, json.dumps) == json.dumps(plain(metrics))
