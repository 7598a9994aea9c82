"""Committed steps: many change the row of a job as one after the other does, and no step is stored twice."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regroup.service.domain.step_columns import StepColumns
from regroup.service.ports.sync import SupervisorStatus, SyncReply
from regroup.service.store.jobs.step_rows import encode_metrics, fold_steps
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.schema.json_values import plain
from regroup.service.store.store import Store
from regroup.workers.contract.messages import StepRow
from tests.support.inputs.step_columns import columns_of


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
        step_row(
            step,
            generation=rng.choice((1, 1, 1, 0)),
            duration_s=rng.choice((0.1, 0.7, None, 0.0, math.nan)),
            loss=rng.choice((1.0, None, math.inf)),
            tokens=rng.choice((64, None)),
            validation_loss=rng.choice((None, 3.0, math.nan)),
            stall_s=rng.choice((0.0, 0.1)),
            extra=rng.choice(({}, {"mfu": 0.4, "other": 1.0}, {"mfu": math.nan}, {"peak_bytes": 5.0})),
        )
        for step in [*range(1, 30), 5, 7, *range(20, 50)]
    ]
    one_by_one = running
    for each in steps:
        one_by_one = replace(one_by_one, **fold_steps(one_by_one, columns_of([each])))
    assert replace(running, **fold_steps(running, columns_of(steps))) == one_by_one
    assert one_by_one.step == 49 and one_by_one.step_duration_s and one_by_one.peak_bytes == 5.0


async def test_metrics_with_the_same_names_change_the_row_as_those_with_others(running: JobRow) -> None:
    steps = [step_row(step, extra={"mfu": step / 8, "peak_bytes": 5.0}) for step in range(2, 5)]
    alike, other = columns_of(steps), columns_of([*steps, step_row(1)])
    assert alike.metrics and other.extra
    assert fold_steps(running, alike) == fold_steps(running, other)
    assert fold_steps(running, alike)["mfu"] == 0.5


async def test_late_steps_and_no_steps_change_nothing(running: JobRow) -> None:
    assert fold_steps(running, StepColumns()) == {}
    assert fold_steps(running, columns_of([step_row(1), step_row(9, generation=0)])) == {}


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
    text = json.dumps(plain(metrics))
    assert encode_metrics(columns_of([step_row(1, extra=metrics)] * 2), json.dumps) == [text, text]
    others = columns_of([step_row(1, extra=metrics), step_row(2, extra={"other": 0.5})])
    assert encode_metrics(others, json.dumps) == [text, '{"other": 0.5}']


MALFORMED: tuple[dict[str, Any], ...] = (
    {"tokens": "many"}, {"samples": True}, {"loss": "low"}, {"extra": [1]}, {"extra": None}, {"time_s": None},
)  # fmt: skip
FLOATS = st.sampled_from((0.25, 3.0, 7, math.nan, -math.inf))
STEPS = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.none() | FLOATS,
        "duration_s": st.none() | FLOATS,
        "stall_s": FLOATS,
        "validation_loss": st.none() | FLOATS,
        "tokens": st.none() | st.just(32),
        "extra": st.dictionaries(st.sampled_from(("mfu", "peak_bytes", "odd\x00")), FLOATS),
    },
)
PLACES = st.tuples(st.integers(0, 2), st.integers(1, 9))
SENT = st.lists(
    st.one_of(
        st.tuples(st.just("step"), PLACES, STEPS),
        st.tuples(st.just("step"), PLACES, STEPS),
        st.tuples(st.just("step"), PLACES, st.sampled_from(MALFORMED)),
        st.tuples(st.sampled_from(("report", "note", "mirror", "generation")), PLACES, st.none()),
    ),
    max_size=25,
)


def sent_events(emitter: Any, sent: Sequence[tuple[str, tuple[int, int], Any]]) -> list[Any]:
    """Return the events of a supervisor. Steps follow the start of their generation, and their metrics follow them.

    Metrics that precede their step would be stored only if both arrive in the same reply.
    """
    found, committed, newest = list[Any](), set[tuple[int, int]](), 1
    for count, (kind, (generation, step), data) in enumerate(sent):
        if kind == "step" and generation <= newest:
            found.append(emitter.step(generation, step, **data))
            if data not in MALFORMED:
                committed.add((generation, step))
        elif kind == "generation":
            found.append(emitter.generation(generation, 0))
            newest = max(newest, generation)
        elif kind == "report" and (generation, step) in committed:
            metrics = {"loss": count / 4, "accuracy": 0.5}
            found.append(emitter.report(kind, f"report:{count}", generation, step=step, metrics=metrics))
        elif kind in ("note", "mirror"):
            fields: dict[str, Any] = {"kind": "x"} if kind == "note" else {"step": step}
            found.append(emitter.report(kind, f"{kind}:{count}", generation, **fields))
    return found


async def stored(store: Store, job_id: str) -> Any:
    """Return all that reported events change in the database."""
    own = dict.fromkeys(("id", "name", "spec", "revision", "created_at", "queued_at", "storage_uri"))
    row = {**asdict(await store.job(job_id)), **own}
    events = [(each.number, each.type, each.generation, each.data) for each in await store.events(job_id)]
    return row, events, await store.step_rows(job_id)


@given(SENT, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=5))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_columns_store_what_single_events_store(
    store: Store, lease: Lease, queue: Any, walk: Any, make_emitter: Any, sent: Any, replies: list[tuple[int, int]]
) -> None:
    """Send random events one by one, and in replies of which some repeat events after a lost acknowledgement."""
    alone, together = await queue(f"a{uuid4().hex}"), await queue(f"b{uuid4().hex}")
    first, second = make_emitter(), make_emitter()
    await walk(alone, first)
    await walk(together, second)
    for event in sent_events(first, sent):
        await store.ingest(lease, alone, first.boot_id, [event], {})
    events = sent_events(second, sent)
    for end, repeated in [*replies, (len(events), 0)]:
        acked = (await store.job(together)).acked_seq - 3  # those of `walk`
        batch = events[max(0, acked - repeated) : max(end, acked)]
        reply = SyncReply.of(second.boot_id, batch, SupervisorStatus())
        received = SyncReply.from_json(json.loads(json.dumps(reply.to_json())))
        assert not any(each.type == "step" for each in received.events)
        await store.ingest(lease, together, received.boot_id, received.events, {}, steps=received.steps)
    assert await stored(store, together) == await stored(store, alone)
