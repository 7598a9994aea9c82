"""The overview and the queue after any order of changes: a long-lived server shows the same as a new one."""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError
from regroup.service.domain.identity import Identity, IdentityKind, Membership, Role
from regroup.service.domain.states import TERMINAL_BY_REASON, TRANSITIONS, JobState, Reason, check_transition
from regroup.service.domain.topology import Node
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.assembly.services import Services
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.settings import Settings
from regroup.service.store.rows.records import HELD, PLACEABLE, Condition, Lease, ProjectRow
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs import held_devices
from tests.support.servers.stores import open_store

PROJECTS = ("default", "speech", "vision")
ANA = Author("ana")
_REASONS = {state: reason for reason, state in TERMINAL_BY_REASON.items()}


def sender(*projects: str, everywhere: Role | None = None, is_operator: bool = False) -> Sender:
    memberships = {name: Membership(Role.VIEWER) for name in projects}
    return Sender(Identity("kim", IdentityKind.USER, memberships, everywhere=everywhere, is_operator=is_operator), "")


SENDERS = (
    sender(everywhere=Role.ADMIN, is_operator=True), sender(everywhere=Role.VIEWER), sender("vision"),
    sender("vision", "speech"), sender(),
)  # fmt: skip


@dataclass
class World:
    """A store that changes, with the server that was there from the beginning."""

    store: Store
    lease: Lease
    rng: random.Random
    now_s: float = 1e6
    names: "itertools.count[int]" = field(default_factory=itertools.count)
    ids: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.add_node(Node("n0", "node-0", "10.0.0.1", cpus=64, free_cpus=64, gpus=64, free_gpus=64))
        self.server = self.new_server()

    def new_server(self) -> Services:
        return Services(self.store, self.cluster, Settings(), clock=lambda: self.now_s)

    def some_job(self) -> str:
        return self.rng.choice(self.ids)

    async def submit(self) -> None:
        job_id = f"job_{next(self.names):04}"
        self.ids.append(job_id)
        fields = {"project": self.rng.choice(PROJECTS), "priority": self.rng.choice(("low", "normal", "high"))}
        await held_devices.submit(self.store, job_id, now=self.now_s, **fields)

    async def cancel(self) -> None:
        await self.store.cancel(self.some_job(), now=self.now_s, author=ANA)

    async def suspend(self) -> None:
        await self.store.queue.suspend(self.some_job(), "why", now=self.now_s, author=ANA)

    async def resume(self) -> None:
        await self.store.queue.resume(self.some_job(), now=self.now_s, author=ANA)

    async def move(self) -> None:
        """Change the state of a job as the controller or its supervisor does."""
        job = await self.store.job(self.some_job())
        if job.state.is_terminal:
            return
        target = self.rng.choice(sorted(TRANSITIONS[job.state]))
        held = [held_devices.reservation(job.id, str(next(self.names)), self.rng.randrange(1, 4))]
        transition = check_transition(job.id, job.state, target, _REASONS.get(target, Reason.PLACED))
        allocate = held if target is JobState.PLACING else ()
        await self.store.apply(self.lease, transition, now=self.now_s, allocate=tuple(allocate))

    async def judge(self) -> None:
        """Record what a scheduling pass found, which causes no event."""
        reason = self.rng.choice(("resources", "no_nodes", "project_quota"))
        found = [Condition(PLACEABLE, self.rng.random() < 0.2, reason, f"because of {reason}")]
        if self.rng.random() < 0.2:
            found.append(Condition(HELD, True, "user_error", "exit code 1"))
        await self.store.set_conditions(self.lease, self.some_job(), found, now=self.now_s)

    async def cordon(self) -> None:
        kind = self.rng.choice((NodeEventKind.CORDONED, NodeEventKind.UNCORDONED))
        order = NodeEvent("node-0", kind, self.now_s, str(next(self.names)), "", "ana", "fan")
        await self.store.nodes.record_order(order, author=ANA)

    async def put_project(self) -> None:
        row = ProjectRow(
            self.rng.choice(PROJECTS), guaranteed=self.rng.randrange(8), weight=self.rng.choice((1.0, 3.0))
        )
        await self.store.queue.put_project(row, now=self.now_s, author=ANA)

    async def wait(self) -> None:
        self.now_s += self.rng.choice((0.01, 0.5, 5.0, 45.0))

    async def change(self) -> None:
        changes: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, self.submit), (2, self.cancel), (1, self.suspend), (1, self.resume), (6, self.move), (4, self.judge),
            (1, self.cordon), (1, self.put_project), (2, self.wait),
        ]  # fmt: skip
        (chosen,) = self.rng.choices([each for _, each in changes], [weight for weight, _ in changes])
        try:
            await chosen()
        except ConflictError:  # for example the suspension of a job that has ended
            return


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/regroup.db"
    else:
        url = request.getfixturevalue("postgres_server").create_database()
    opened = await open_store(url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_after_any_order_of_changes_are_those_of_a_new_server(store: Store, seed: int) -> None:
    lease = await store.acquire_lease("controller", 600.0)
    assert lease is not None
    world = World(store, lease, random.Random(seed))
    await world.submit()
    for _ in range(40):
        for _ in range(world.rng.randrange(3)):  # zero: nothing changes between two answers
            await world.change()
        new, viewer = world.new_server(), world.rng.choice(SENDERS)
        kept, fresh = await world.server.overviews.get(viewer), await new.overviews.get(viewer)
        # The goodput may be a minute old. While nothing changes, an answer is up to a second old.
        assert replace(kept, goodput=(), time_s=0.0) == replace(fresh, goodput=(), time_s=0.0)
        assert shown(await world.server.queue_list.read()) == shown(await new.queue_list.read())
        await world.wait()


def shown(queue: Any) -> Any:
    return queue.projects, queue.part(frozenset(PROJECTS), 0, 1000), queue.part(frozenset({"vision"}), 1, 5)


async def test_an_answer_is_the_same_object_until_something_changes(store: Store) -> None:
    world = World(store, await store.acquire_lease("controller", 600.0), random.Random(1))  # type: ignore[arg-type]
    await world.submit()
    overviews, queue = world.server.overviews, world.server.queue_list
    everyone, member = SENDERS[0], SENDERS[2]
    first = await overviews.get(everyone), await overviews.get(member), await queue.read()
    again = await overviews.get(everyone), await overviews.get(member), await queue.read()
    assert all(one is other for one, other in zip(first, again, strict=True))
    await world.submit()
    changed = await overviews.get(everyone), await overviews.get(member), await queue.read()
    assert not any(one is other for one, other in zip(first, changed, strict=True))


async def test_sums_of_the_past_are_renewed_before_they_expire_and_no_request_waits(store: Store) -> None:
    world = World(store, await store.acquire_lease("controller", 600.0), random.Random(1))  # type: ignore[arg-type]
    overviews, everyone = world.server.overviews, SENDERS[0]
    first = await overviews.get(everyone)
    world.now_s += 31.0
    renewing = await overviews.get(everyone)
    assert renewing.goodput == first.goodput, "the answer does not wait for new sums"
    assert overviews._renewal is not None
    await overviews._renewal
    world.now_s += 2.0
    assert (await overviews.get(everyone)).goodput[-1].end_s == first.time_s + 31.0
    world.now_s += 3600.0
    assert (await overviews.get(everyone)).goodput[-1].end_s == world.now_s, "too old to be shown"
