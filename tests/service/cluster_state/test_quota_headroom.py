"""A job that grows keeps to what its project may hold."""

import time
from dataclasses import replace

import pytest

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.domain.errors import SpecError
from regroup.service.store.records import Condition, ProjectRow
from tests.service.controller.test_resize import Running, node
from tests.service.controller.test_resize import house as house
from tests.service.controller.test_resize import job as job


async def allowed(job: Running, at_most: int = 8) -> int:
    """The largest degree that it may have beside a node of four slots more."""
    store = job.house.store
    nodes = without_allocated([node(1), node(2), node(3, cpus=4)], await store.live_allocations())
    row = await store.job("j-gpt")
    ladder = row.parsed_spec().ladder
    return await QuotaHeadroom(store).largest_degree(row, ladder, nodes, time.time(), at_most=at_most)


async def test_it_may_be_as_large_as_its_project_may_hold(job: Running) -> None:
    projects = job.house.store.queue
    assert await allowed(job) == 8 and await allowed(job, at_most=6) == 6, "nobody has set up quotas"
    await projects.put_project(ProjectRow("default", limit=7))
    assert await allowed(job) == 7
    await projects.put_project(ProjectRow("default", limit=3))
    assert await allowed(job) == 3, "it holds more than that already"
    await projects.put_project(ProjectRow("default"))
    await projects.put_project(ProjectRow("others", guaranteed=2, borrowable=0))
    assert await allowed(job) == 6, "two are never lent"
    await projects.remove_project("others")
    # The limit holds for all jobs of the project together.
    await projects.put_project(ProjectRow("default", limit=7))
    job.house.cluster.add_node(node(3))
    await job.house.supervisor(await job.house.submit("other", dp=2))
    assert await allowed(job) == 5


async def test_a_wish_beyond_it_waits_for_another_quota(job: Running) -> None:
    store = job.house.store
    await store.queue.put_project(ProjectRow("default", limit=4))
    job.house.cluster.add_node(node(3))
    await job.resize(6)
    waiting = await job.house.until("j-gpt", lambda row: any(each.type == "Resized" for each in row.conditions))
    (condition,) = [each for each in waiting.conditions if each.type == "Resized"]
    assert "uses 4 of at most 4" in condition.message
    assert await job.held() == {"local-1": 2, "local-2": 2}
    await store.queue.put_project(ProjectRow("default", limit=6))
    await job.told(6)


async def test_a_project_that_admits_no_such_size_refuses_it(job: Running) -> None:
    await job.house.store.queue.put_project(ProjectRow("default", admits={"max_ranks": 5}))
    with pytest.raises(SpecError, match=r"allows 5 per job, .* has 6"):
        await job.resize(6)


async def test_only_who_could_take_the_room_keeps_others_from_growing(job: Running) -> None:
    row = await job.house.store.job("j-gpt")
    assert waits_for_nodes(replace(row, conditions=())), "nobody has looked at it yet"
    for reason, waits in (("resources", True), ("priority", True), ("dependency", False), ("too_large", False)):
        said = Condition("Placeable", False, reason, "")
        assert waits_for_nodes(replace(row, conditions=(said,))) is waits
