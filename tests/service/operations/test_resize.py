"""Legal sizes of a job, and the states in which it can be resized."""

import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, SpecError
from regroup.service.domain.states import JobState, Reason, Transition
from regroup.service.operations.resize import Size, layout_for, resize
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.store.rows.records import NewJob
from regroup.service.store.store import Store
from tests.support.servers.stores import open_store

MODEL = {"dim": 64, "layers": 4, "heads": 4, "vocab_size": 264}


def spec(dp: Any, kind: str = "builtin", **layout: Any) -> JobSpec:
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "model": MODEL, "data": {"train": ["/d"]}}
    if kind == "script":
        return parse_spec(
            {"name": "t", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": {"dp": dp, **layout}}
        )
    return parse_spec({"name": "t", "workload": workload, "training": training, "layout": {"dp": dp, **layout}})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    made = await open_store(f"sqlite:///{tmp_path}/db")
    yield made
    await made.close()


ELASTIC = {"min": 1, "target": 4, "max": 6}


def test_a_legal_size_has_a_layout() -> None:
    assert layout_for(spec(ELASTIC), Size(3)).to_json()["dp_shard"] == 3
    assert layout_for(spec({"min": 2, "target": 4, "max": 6}, dp_shard=2), Size(4)).dp_replicate == 2


@pytest.mark.parametrize(
    ("given", "size", "message"),
    [
        (spec(ELASTIC), Size(9), "dp from 1 to 6); nearest legal: 5 and 6"),
        (spec({"min": 2, "target": 4, "max": 6}, dp_shard=2), Size(3), "nearest legal: 2 and 4"),
        (spec(4), Size(2), "dp from 4 to 4); nearest legal: 4"),
        (spec(ELASTIC, kind="script"), Size(2, tp=2), "only the built-in trainer"),
        (spec(ELASTIC), Size(2, tp=3), "this job has no legal size with tp=3"),
    ],
)
def test_an_illegal_size_is_refused_with_the_nearest_legal_sizes(given: JobSpec, size: Size, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        layout_for(given, size)
    assert message in refused.value.issues[0].message


def test_tp_and_pp_can_change_if_the_model_allows_it() -> None:
    assert str(layout_for(spec(ELASTIC), Size(2, tp=2))) == "dp_shard=2×tp=2"
    assert str(layout_for(spec(ELASTIC), Size(2, pp=2))) == "dp_shard=2×pp=2"


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.DRAINING])
async def test_an_ending_job_cannot_be_resized(store: Store, state: JobState) -> None:
    now, lease = time.time(), await store.acquire_lease("test", 60.0)
    assert lease is not None
    job = await store.submissions.submit(NewJob("j", spec(ELASTIC), "file:///s"), now=now, author=Author("test"))
    if state is JobState.CANCELLED:
        job = await store.cancel("j", now=now, author=Author("test"))
    else:
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED), (JobState.PLACING, state, Reason.CANCELLED_BY_USER),
        ):  # fmt: skip
            job = await store.apply(lease, Transition("j", source, target, reason), now=now)
    with pytest.raises(ConflictError, match=f"it is {state} .only queued or running jobs"):
        await resize(store, job, layout_for(job.parsed_spec(), Size(3)), why="x", now=now, author=Author("test"))
    assert not job.intents.get("resize")
