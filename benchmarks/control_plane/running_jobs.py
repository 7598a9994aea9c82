"""Jobs that run, in a database: the rows of one are written by the store, and those of the others are copies."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from regroup.service.cluster_state.allocations import allocate
from regroup.service.domain.author import Author
from regroup.service.domain.job_events import GenerationStarted, JobEvent, RankPlace, StateChanged, encode, type_of
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import ACCELERATOR_LABEL, DEFAULT_LABELS, Level, Node
from regroup.service.policy.placement.place import Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission, demand_of
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import NewJob
from regroup.service.store.schema.tables import allocations, events, generations, jobs, predictions
from regroup.service.store.store import Store

RANKS_PER_NODE, NODES_PER_JOB = 4, 2
"""A node with eight GPUs is shared by two jobs, so there are as many nodes as jobs."""
RANKS = RANKS_PER_NODE * NODES_PER_JOB
_GPUS = 8
_NODES_PER_RACK = 8
_COPIED = (jobs, allocations, events, generations, predictions)
_PER_STATEMENT = 500
_LAYOUT = Layout(dp_shard=RANKS)
_PROJECTS = 20


@dataclass(frozen=True)
class RunningJob:
    """A job whose supervisor is simulated."""

    number: int
    nodes: tuple[Node, ...]

    @property
    def id(self) -> str:
        """Id of the job."""
        return f"job_{self.number:020}"


def cluster_nodes(count: int) -> list[Node]:
    """Return the nodes of a cluster on which `count` jobs run. Their GPUs are in use."""
    return [
        Node(
            f"{number:08x}".ljust(56, "0"), f"gpu-{number}", _address(number),
            labels={DEFAULT_LABELS[Level.RACK]: f"rack-{number // _NODES_PER_RACK}", ACCELERATOR_LABEL: "H100"},
            cpus=128, gpus=_GPUS, memory_bytes=2**40, free_cpus=0, free_gpus=0,
        )
        for number in range(max(count, NODES_PER_JOB))
    ]  # fmt: skip


def running_jobs(count: int) -> list[RunningJob]:
    """Return the jobs. Each runs on two neighbours of the cluster."""
    nodes = cluster_nodes(count)
    places = [[nodes[(number + each) % len(nodes)] for each in range(NODES_PER_JOB)] for number in range(count)]
    return [RunningJob(number, tuple(found)) for number, found in enumerate(places)]


async def store_jobs(url: str, found: Sequence[RunningJob]) -> None:
    """Create the schema and the rows of the jobs: they are RUNNING in generation 1, at step 0."""
    first = found[0]
    store = await Store.open(url)
    try:
        await _run_one(store, first)
    finally:
        await store.close()
    engine = create_async_engine(driver_url(url))
    async with engine.begin() as connection:
        for table in _COPIED:
            rows = [dict(row) for row in (await connection.execute(sa.select(table))).mappings()]
            copies = (copy for job in found[1:] for copy in _copies(rows, first, job))
            for batch in _batches(copies, _PER_STATEMENT):
                await connection.execute(table.insert(), batch)
    if engine.dialect.name == "postgresql":
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(sa.text("VACUUM ANALYZE"))
    await engine.dispose()


async def _run_one(store: Store, job: RunningJob) -> None:
    """Write the life of a job until its first step, as the API, the controller and a supervisor do."""
    spec = parse_spec({
        "name": _name(job), "project": _project(job),
        "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
        "training": {"global_batch": RANKS, "micro_batch": 1, "sequence": 8, "steps": 10**7},
        "resources": {"device": "cuda"}, "layout": {"dp": RANKS},
    })  # fmt: skip
    author, now = Author("benchmark"), time.time()
    lease = await store.acquire_lease("benchmark", 60.0)
    assert lease is not None, "nothing else uses the database"
    row = await store.submissions.submit(NewJob(job.id, spec, "file:///nowhere"), now=now, author=author)
    slots = tuple(RankSlot(node, RANKS_PER_NODE) for node in job.nodes)
    rows = allocate(row, Admission(job.id, _LAYOUT, demand_of(spec, _LAYOUT), Placement(slots)))
    placed = check_transition(job.id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await store.apply(lease, placed, now=now, allocate=rows)
    starting = check_transition(job.id, JobState.PLACING, JobState.STARTING, Reason.RESERVED)
    await store.apply(lease, starting, now=now)
    places = tuple(
        RankPlace(node * RANKS_PER_NODE + local, each.id, each.name, each.address, local, local)
        for node, each in enumerate(job.nodes)
        for local in range(RANKS_PER_NODE)
    )
    formed = GenerationStarted(1, _LAYOUT.to_json(), RANKS, places, 0, {"source": "none"}, "start")
    running = StateChanged(JobState.RUNNING, Reason.FIRST_STEP)
    reported = [_event(1, formed, now), _event(2, running, now)]
    await store.ingest(lease, job.id, "before the benchmark", reported, {"reported_at": now})
    await store.predictions.put(lease, job.id, 1, {"why_not": "the benchmark has no probe"})
    await store.release_lease(lease)


def _event(number: int, event: JobEvent, time_s: float) -> SupervisorEvent:
    kind = type_of(event).value
    return SupervisorEvent(number, f"{kind}:{number}", kind, 1, time_s, encode(event))


def _copies(rows: Sequence[Mapping[str, Any]], first: RunningJob, job: RunningJob) -> list[dict[str, Any]]:
    """Return the rows of `first` as rows of another job on other nodes."""
    names = {first.id: job.id, _name(first): _name(job), _project(first): _project(job)}
    for before, after in zip(first.nodes, job.nodes, strict=True):
        names |= {before.id: after.id, before.id[:8]: after.id[:8], before.name: after.name}
        names |= {before.address: after.address}
    return [
        {column: _renamed(value, names) for column, value in row.items() if column != "id" or value == first.id}
        for row in rows
    ]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with other names, also in the names of actors and reservations."""
    if isinstance(value, str):
        return names.get(value) or ":".join(names.get(part, part) for part in value.split(":"))
    if isinstance(value, list):
        return [_renamed(item, names) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in cast(dict[str, Any], value).items()}
    return value


def _batches(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(rows, size)):
        yield batch


def _address(number: int) -> str:
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def _name(job: RunningJob) -> str:
    return f"live-{job.number}-of-benchmark"


def _project(job: RunningJob) -> str:
    return f"p{job.number % _PROJECTS}"


def driver_url(url: str) -> str:
    """Return the URL of a database for SQLAlchemy."""
    return url.replace("sqlite:///", "sqlite+aiosqlite:///")
