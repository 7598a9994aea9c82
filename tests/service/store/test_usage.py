"""Use of devices on both databases: windows, groups, live and ended jobs, pages, and jobs that were removed."""

from typing import Any

import pytest
import sqlalchemy as sa

from regroup.service.domain.errors import NotFoundError
from regroup.service.observability.job_totals import count_batch
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.retention import RetentionPolicy, remove_expired
from regroup.service.operations.usage import fold_batch
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.store.rows.records import Lease, ProjectRow
from regroup.service.store.store import Store
from regroup.service.store.usage import Group, GroupUse, UsageSelection
from tests.support.inputs.held_devices import allocate, end, requeue, reservation, submit

ALL = (0.0, 1000.0)
EVERY_GROUP = (Group.PROJECT, Group.USER, Group.CLASS, Group.JOB)


async def use(store: Store, window: tuple[float, float] = ALL, *groups: Group, projects: Any = None) -> dict[Any, Any]:
    """Return the device-seconds by accelerator of each group."""
    selection = UsageSelection(*window, groups or (Group.JOB,), projects)
    return {each.key: dict(each.seconds) for each in await store.usage.page(selection, None, 1000)}


@pytest.fixture
async def jobs(store: Store, lease: Lease) -> None:
    """Two ended jobs and a live one, of two users in two projects.

    j_one: 4 H100 from 100 to 200, then 8 from 300 to 400. j_two: 2 CPU ranks from 100 to 500.
    j_three: 1 A100 since 600.
    """
    await submit(store, "j_one", "ana", project="vision")
    await allocate(store, lease, "j_one", reservation("j_one", "a", 3), reservation("j_one", "b", 1), now=100.0)
    await requeue(store, lease, "j_one", now=200.0)
    await allocate(store, lease, "j_one", reservation("j_one", "c", 8), now=300.0)
    await end(store, lease, "j_one", now=400.0)
    await submit(store, "j_two", "bob", project="vision")
    await allocate(store, lease, "j_two", reservation("j_two", "a", 2, "H100", "cpu"), now=100.0)
    await end(store, lease, "j_two", now=500.0)
    await submit(store, "j_three", "bob", project="speech")
    await allocate(store, lease, "j_three", reservation("j_three", "a", 1, "A100"), now=600.0)


async def fold(store: Store, folded: bool) -> None:
    if folded:
        assert not await fold_batch(store, 700.0)
        assert await store.usage.unfolded(10) == []


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("window", "one", "two", "three"),
    [
        ((0.0, 1000.0), 1200.0, 800.0, 400.0),
        ((150.0, 350.0), 600.0, 400.0, 0.0),
        ((200.0, 300.0), 0.0, 200.0, 0.0),
        ((199.5, 300.25), 4.0, 201.5, 0.0),
        ((500.0, 600.0), 0.0, 0.0, 0.0),
        ((650.0, 651.0), 0.0, 0.0, 1.0),
    ],
)
async def test_use_is_clipped_exactly_to_the_window(
    store: Store, jobs: None, folded: bool, window: tuple[float, float], one: float, two: float, three: float
) -> None:
    await fold(store, folded)
    expected = {("j_one",): {"H100": one}, ("j_two",): {"cpu": two}, ("j_three",): {"A100": three}}
    assert await use(store, window) == {key: value for key, value in expected.items() if any(value.values())}


@pytest.mark.parametrize("folded", [False, True])
async def test_use_is_summed_by_each_group(store: Store, jobs: None, folded: bool) -> None:
    await fold(store, folded)
    assert await use(store, ALL, Group.PROJECT) == {
        ("speech",): {"A100": 400.0},
        ("vision",): {"H100": 1200.0, "cpu": 800.0},
    }
    assert await use(store, ALL, Group.USER) == {("ana",): {"H100": 1200.0}, ("bob",): {"cpu": 800.0, "A100": 400.0}}
    assert list(await use(store, ALL, Group.CLASS)) == [("A100",), ("H100",), ("cpu",)]
    assert list(await use(store, ALL, Group.USER, Group.PROJECT)) == [
        ("ana", "vision"), ("bob", "speech"), ("bob", "vision"),
    ]  # fmt: skip
    assert await use(store, ALL, Group.PROJECT, projects=frozenset({"speech"})) == {("speech",): {"A100": 400.0}}
    assert await use(store, ALL, Group.PROJECT, projects=frozenset()) == {}
    (total,) = await store.usage.page(UsageSelection(*ALL), None, 10)
    assert total.key == () and dict(total.seconds) == {"H100": 1200.0, "cpu": 800.0, "A100": 400.0}


@pytest.mark.parametrize("folded", [False, True])
async def test_pages_contain_each_group_once(store: Store, jobs: None, folded: bool) -> None:
    await fold(store, folded)
    selection, found, after = UsageSelection(*ALL, EVERY_GROUP), list[GroupUse](), None
    while page := await store.usage.page(selection, after, 1):
        found += page
        after = page[-1].key
    assert found == await store.usage.page(selection, None, 100)
    assert [(each.key, each.job_name) for each in found] == [
        (("speech", "bob", "A100", "j_three"), "j-three"),
        (("vision", "ana", "H100", "j_one"), "j-one"),
        (("vision", "bob", "cpu", "j_two"), "j-two"),
    ]


async def test_groups_have_the_order_of_code_points_in_both_databases(store: Store, lease: Lease) -> None:
    users = ["Zoe", "ana", "Bob", "a-b", "a b", "élise", "a_b"]
    for number, user in enumerate(users):
        job_id = f"j_{number}"
        await submit(store, job_id, user)
        await allocate(store, lease, job_id, reservation(job_id, "a", 1), now=10.0)
        if number % 2:
            await end(store, lease, job_id, now=20.0)
    await fold_batch(store, 30.0)
    selection, found, after = UsageSelection(*ALL, (Group.USER,)), list[str](), None
    while page := await store.usage.page(selection, after, 2):
        found += [each.key[0] for each in page]
        after = page[-1].key
    assert found == sorted(users)


async def test_use_remains_when_its_job_is_removed(store: Store, lease: Lease, jobs: None) -> None:
    before = {groups: await use(store, (150.0, 350.0), *groups) for groups in ((Group.PROJECT,), EVERY_GROUP)}
    policy = RetentionPolicy(events_s=1.0, steps_s=1.0, jobs_s=1.0, idempotency_s=1.0)
    await count_batch(store, 10_000.0)
    while await remove_expired(store, policy, 10_000.0):
        pass
    for job_id in ("j_one", "j_two"):
        with pytest.raises(NotFoundError):
            await store.job(job_id)
    assert (await store.job("j_three")).id == "j_three"
    assert {groups: await use(store, (150.0, 350.0), *groups) for groups in before} == before


async def test_a_job_is_not_removed_before_its_use_is_stored(store: Store, jobs: None) -> None:
    await count_batch(store, 10_000.0)
    assert await store.retention.remove_job("j_one") == 0
    assert await store.usage.fold("j_one", now=700.0) and not await store.usage.fold("j_one", now=701.0)
    assert await store.retention.remove_job("j_one") == 1
    assert not await store.usage.fold("j_three", now=700.0), "it has not ended"


async def test_few_rows_are_stored_for_many_reservations(store: Store, lease: Lease) -> None:
    await submit(store, "j_wide")
    rows = [reservation("j_wide", f"r{number}", 4) for number in range(500)]
    await allocate(store, lease, "j_wide", *rows, now=10.0)
    await end(store, lease, "j_wide", now=20.0)
    await fold_batch(store, 30.0)
    async with store._database.read() as connection:
        found = (await connection.execute(sa.text("SELECT devices, start_s, end_s FROM usage"))).all()
    assert [tuple(row) for row in found] == [(2000, 10.0, 20.0)]


async def test_reservations_of_earlier_versions_have_the_accelerator_of_the_spec(store: Store, lease: Lease) -> None:
    await submit(store, "j_old", resources={"device": "cuda", "accelerator": "H100"})
    await submit(store, "j_any", resources={"device": "cuda"})
    for job_id in ("j_old", "j_any"):
        await allocate(store, lease, job_id, reservation(job_id, "a", 1, None), now=10.0)
    assert await use(store, (0.0, 20.0), Group.CLASS) == {("H100",): {"H100": 10.0}, ("cuda",): {"cuda": 10.0}}


async def test_the_metric_counts_live_and_ended_jobs_of_projects_with_settings(store: Store, jobs: None) -> None:
    await store.queue.put_project(ProjectRow("vision"))
    for folded in (False, True):
        await fold(store, folded)
        text = (await Metrics(store, QuarantinePolicy(3600.0, 600.0), clock=lambda: 1000.0).render()).decode()
        found = [line for line in text.splitlines() if line.startswith("regroup_project_device_seconds_total{")]
        assert found == ['regroup_project_device_seconds_total{project="vision"} 2000.0']
    assert await store.usage.seconds_by_project(800.0) == {"vision": 2000.0, "speech": 200.0}
