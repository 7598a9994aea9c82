"""Predictions of jobs are read once for each generation."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.domain.author import Author
from regroup.service.observability.job_predictions import JobPredictions
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow, NewJob
from regroup.service.store.store import Store
from tests.support.servers.statements import recorded_statements
from tests.support.servers.stores import open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def queue(store: Store, name: str) -> JobRow:
    training = {"global_batch": 1, "micro_batch": 1, "sequence": 8, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": name, "workload": workload, "training": training})
    return await store.submissions.submit(NewJob(name, spec, "file:///s"), now=time.time(), author=Author("test"))


async def test_predictions_of_a_generation_are_read_once(store: Store) -> None:
    lease = await store.acquire_lease("one", 60.0)
    assert lease is not None
    predictions = JobPredictions(store)
    one, two = [replace(await queue(store, name), generation=1) for name in ("one", "two")]
    assert await predictions.newest([one, two]) == {}
    await store.predictions.put(lease, one.id, 1, {"step_s": 0.5})
    await store.predictions.put(lease, two.id, 1, {"step_s": 0.7})
    expected = {one.id: {"step_s": 0.5}, two.id: {"step_s": 0.7}}
    assert await predictions.newest([one, two]) == expected
    with recorded_statements(store) as statements:
        assert await predictions.newest([one, two]) == expected
    assert statements == []
    later = replace(one, generation=2)
    assert await predictions.newest([later, two]) == expected, "the newer generation has none yet"
    await store.predictions.put(lease, one.id, 2, {"step_s": 0.4})
    assert await predictions.newest([later]) == {one.id: {"step_s": 0.4}}, "another job is forgotten"
