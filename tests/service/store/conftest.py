"""Fixtures: a store on each dialect, events of a supervisor, and hooks of a project."""

import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.hooks import HookKind
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store
from tests.support.inputs.job_events import event_data
from tests.support.servers.stores import open_store


@dataclass(frozen=True)
class Report:
    """An event of a supervisor."""

    seq: int
    key: str
    type: str
    generation: int
    time_s: float
    data: dict[str, Any]


class EventEmitter:
    """A supervisor process that numbers its events."""

    def __init__(self, boot_id: str = "boot-1") -> None:
        self.boot_id = boot_id
        self._sequence = itertools.count(1)

    def report(self, kind: str, key: str, generation: int = 1, /, **data: Any) -> Report:
        seq = next(self._sequence)
        time_s = 1000.0 + seq
        return Report(seq, key, kind, generation, time_s, event_data(kind, generation, time_s, data))

    def state(self, state: JobState, reason: Reason, **data: Any) -> Report:
        return self.report("state", f"state:{self.boot_id}:{state}:{reason}", state=state, reason=reason, **data)

    def generation(self, number: int, start_step: int, **data: Any) -> Report:
        ranks = [{"rank": 0, "node_id": "n0", "node_name": "a", "address": "::1", "local_rank": 0, "device": 0}]
        fixed = {"layout": {"dp_shard": 1}, "world_size": 1, "ranks": ranks, "restore": {"source": "none"}, "cause": ""}
        data = {**fixed, "number": number, "start_step": start_step, **data}
        return self.report("generation", f"generation:{number}", number, **data)

    def step(self, generation: int, step: int, **data: Any) -> Report:
        fixed = {"duration_s": 0.5, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 2**63 + step}
        return self.report("step", f"step:{generation}:{step}", generation, **{**fixed, "step": step, **data})


def spec_named(name: str = "gpt", **fields: Any) -> JobSpec:
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    return parse_spec({"name": name, "workload": workload, "training": training, **fields})


@pytest.fixture
def make_spec() -> Callable[..., JobSpec]:
    return spec_named


@pytest.fixture
def make_emitter() -> type[EventEmitter]:
    return EventEmitter


@pytest.fixture
def emitter() -> EventEmitter:
    return EventEmitter()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/regroup.db"
    return request.getfixturevalue("postgres_server").create_database()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await open_store(database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def lease(store: Store) -> Lease:
    acquired = await store.acquire_lease("controller-a", 30.0)
    assert acquired is not None
    return acquired


@pytest.fixture
def queue(store: Store) -> Callable[..., Any]:
    count = itertools.count(1)

    async def submit(name: str = "gpt", author: str = "someone", **fields: Any) -> str:
        number = next(count)
        new = NewJob(f"job_{number:04}", spec_named(name, **fields), f"file:///s/jobs/job_{number:04}")
        return (await store.submissions.submit(new, now=100.0 + number, author=Author(author))).id

    return submit


@pytest.fixture
def walk(store: Store, lease: Lease) -> Callable[..., Any]:
    """Bring a queued job to RUNNING, as a controller and a supervisor do."""

    async def run(job_id: str, emitter: EventEmitter) -> None:
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
            (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        ):
            await store.apply(lease, check_transition(job_id, source, target, reason), now=500.0)
        first = [emitter.generation(1, 0), emitter.step(1, 1), emitter.state(JobState.RUNNING, Reason.FIRST_STEP)]
        await store.ingest(lease, job_id, emitter.boot_id, first, {})

    return run


def hook_row(hook_id: str = "hook_1", **fields: Any) -> HookRow:
    usual: dict[str, Any] = {
        "project": "default", "name": "ci", "kind": HookKind.CLOUDEVENTS, "url": "https://example.com/in?token=t",
        "recipients": (), "events": ("state",), "labels": {}, "is_enabled": True, "secret": "whsec_c2VjcmV0",
        "created_at": 1.0, "created_by": "ana",
    }  # fmt: skip
    return HookRow(hook_id, **{**usual, **fields})


@pytest.fixture
def make_hook() -> Callable[..., HookRow]:
    return hook_row


@pytest.fixture
def hook(store: Store) -> Callable[..., Any]:
    """Create a hook."""

    async def create(hook_id: str = "hook_1", **fields: Any) -> HookRow:
        row = hook_row(hook_id, **fields)
        await store.hooks.create(row)
        return row

    return create


@pytest.fixture
def waiting(store: Store) -> Callable[..., Any]:
    """Return the deliveries of a hook, the oldest first."""

    async def read(hook_id: str = "hook_1", project: str = "default") -> Any:
        return (await store.hooks.deliveries.page(project, hook_id, None, None, 1000))[::-1]

    return read
