"""Single pages of lists, and parts of a rank's output, with the real app."""

from typing import Any

import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.connection.errors import ApiError


async def test_pages_of_jobs_follow_each_other_without_gaps(live: Any) -> None:
    created = [(await live.submit(name=f"gpt-{number}"))["id"] for number in range(5)]
    async with AsyncClient(live.url, patience_s=5.0) as client:
        seen, cursor = list[str](), None
        for size in (2, 2, 1):
            page = await client.job_page(cursor=cursor, size=2)
            assert len(page.items) == size
            seen += [each.id for each in page.items]
            cursor = page.next_cursor
        assert cursor is None and sorted(seen) == sorted(created)
        with pytest.raises(ApiError, match="page_size"):
            await client.job_page(size=10**9)
    same = await live.client(lambda blocking: blocking.job_page(size=2))
    assert [each.id for each in same.items] == seen[:2]


async def test_a_page_of_events_begins_after_a_number(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    async with AsyncClient(live.url, patience_s=5.0) as client:
        numbers = [event.number async for event in client.events(job)]
        page = await client.event_page(job, after=1, size=2)
        assert [each.number for each in page.items] == numbers[1:3] and page.next_cursor == "3"


async def test_pages_of_other_lists_have_the_requested_size(live: Any) -> None:
    await live.http.put("/v1/projects/vision", json={"limit": 8})
    await live.http.put("/v1/projects/vision", json={"limit": 9})
    async with AsyncClient(live.url, patience_s=5.0) as client:
        page = await client.audit_page(action="projects.put", size=1)
        assert [each.after["limit"] for each in page.items] == [9] and page.next_cursor
        following = await client.audit_page(action="projects.put", cursor=page.next_cursor, size=1)
        assert [each.after["limit"] for each in following.items] == [8]
        assert (await client.usage_page(size=1)).items == []


async def test_a_part_of_the_output_ends_at_its_limit_and_names_the_next_one(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    live.cluster.logs[job, 1, 0, "stdout"] = "0123456789é"
    async with AsyncClient(live.url, patience_s=5.0) as client:
        first = await client.log_part(job, limit=4)
        assert (first.text, first.next_offset, first.is_complete) == ("0123", 4, False)
        rest = await client.log_part(job, offset=first.next_offset)
        assert (rest.text, rest.next_offset) == ("456789é", 12)
        assert (await client.log_part(job, offset=12)).next_offset == 12
        with pytest.raises(ApiError, match="limit"):
            await client.log_part(job, limit=2**21)
        with pytest.raises(ApiError, match="no stdout of rank 7"):
            await client.log_part(job, rank=7)


async def test_a_key_of_the_caller_makes_a_repeated_request_take_effect_once(live: Any, make_spec: Any) -> None:
    async with AsyncClient(live.url, patience_s=5.0) as client:
        once = client.under(idempotency_key="mine")
        assert (await once.submit(make_spec())).id == (await once.submit(make_spec())).id
        assert len([each async for each in client.jobs()]) == 1
