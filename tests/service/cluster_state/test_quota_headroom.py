"""The growth of a job within the quota of its project."""

import time
from dataclasses import replace

import pytest

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.domain.errors import SpecError
from regroup.service.store.rows.records import Condition, ProjectRow
from tests.service.controller.test_resize import Running, node
from tests.service.controller.test_resize import job as job
from tests.service.controller.test_resize import setup as setup


async def allowed(job: Running, at_most: int = 8) -> int:
    """Return the largest degree that the job may have if a node with four more slots joins."""
    store = job.setup.store
    nodes = without_allocated([node(1), node(2), node(3, cpus=4)], await store.live_allocations())
    row = await store.job("j-gpt")
    ladder = row.parsed_spec().ladder
    return await QuotaHeadroom(store).largest_degree(row, ladder, nodes, time.time(), at_most=at_most)


async def test_a_job_may_grow_to_the_quota_of_its_project(job: Running) -> None:
    projects = job.setup.store.queue
    assert await allowed(job) == 8 and await allowed(job, at_most=6) == 6, "no quota is set"
    await projects.put_project(ProjectRow("default", limit=7))
    assert await allowed(job) == 7
    await projects.put_project(ProjectRow("default", limit=3))
    assert await allowed(job) == 3, "the job already uses more than the limit"
    await projects.put_project(ProjectRow("default"))
    await projects.put_project(ProjectRow("others", guaranteed=2, borrowable=0))
    assert await allowed(job) == 6, "two devices cannot be borrowed"
    await projects.remove_project("others")
    # The limit applies to the sum of all jobs of the project.
    await projects.put_project(ProjectRow("default", limit=7))
    job.setup.cluster.add_node(node(3))
    await job.setup.supervisor(await job.setup.submit("other", dp=2))
    assert await allowed(job) == 5


async def test_a_resize_above_the_quota_waits_for_a_larger_quota(job: Running) -> None:
    store = job.setup.store
    await store.queue.put_project(ProjectRow("default", limit=4))
    job.setup.cluster.add_node(node(3))
    await job.resize(6)
    waiting = await job.setup.until("j-gpt", lambda row: any(each.type == "Resized" for each in row.conditions))
    (condition,) = [each for each in waiting.conditions if each.type == "Resized"]
    assert "uses 4 of at most 4" in condition.message
    assert await job.allocated() == {"local-1": 2, "local-2": 2}
    await store.queue.put_project(ProjectRow("default", limit=6))
    await job.wait_for_size(6)


async def test_a_resize_above_the_largest_job_of_the_project_is_refused(job: Running) -> None:
    await job.setup.store.queue.put_project(ProjectRow("default", admits={"max_ranks": 5}))
    with pytest.raises(SpecError, match=r"allows 5 per job, .* has 6"):
        await job.resize(6)


async def test_only_jobs_that_could_use_the_capacity_block_growth(job: Running) -> None:
    row = await job.setup.store.job("j-gpt")
    assert waits_for_nodes(replace(row, conditions=())), "the scheduler has not examined the job yet"
    for reason, waits in (("resources", True), ("priority", True), ("dependency", False), ("too_large", False)):
        condition = Condition("Placeable", False, reason, "")
        assert waits_for_nodes(replace(row, conditions=(condition,))) is waits
