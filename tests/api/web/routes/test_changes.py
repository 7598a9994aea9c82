"""Notices of changes on a real socket: as they happen, resumable, and only of what the sender may read."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from regroup.api.client.connection.streams import EventParser
from regroup.api.web import stream_access
from regroup.service.domain.credentials.api_tokens import TokenParts, generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.operations.access import authentication
from regroup.service.ports.cluster import Node
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow

FOLLOW = "/v1/changes?follow=true"


@pytest.fixture
async def ana(live: Any) -> TokenParts:
    """Token of a viewer of the project `own`."""
    parts, store = generate_token(), live.store.identities
    await store.create_identity(IdentityRow("ana", IdentityKind.USER, None, False, 1.0, "test"))
    await store.put_member(MemberRow("own", "ana", Membership(Role.VIEWER), 1.0, "test"))
    await store.create_token(TokenRow(parts.id, "ana", "", parts.digest, None, None, 1.0, "test"))
    return parts


class Following:
    """A connection that reads the stream."""

    def __init__(self, live: Any, token: str, last_event_id: str = "") -> None:
        self.notices: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.kinds: list[str] = []
        self._news = asyncio.Condition()
        headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        self.task = asyncio.create_task(self._run(live.url, headers))

    async def _run(self, url: str, headers: dict[str, str]) -> None:
        parser = EventParser()
        async with (
            httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=20) as http,
            http.stream("GET", FOLLOW) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            async for chunk in answer.aiter_bytes():
                for event in parser.feed(chunk):
                    self.kinds.append(event.kind)
                    self.ids.append(event.id)
                    self.notices.append(json.loads(event.data))
                async with self._news:
                    self._news.notify_all()

    async def until(self, kind: str, **values: Any) -> None:
        """Wait for a notice."""

        def is_found() -> bool:
            return any({**each, **values, "kind": kind} == each for each in self.notices)

        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(is_found)

    async def __aenter__(self) -> "Following":
        await self.until("start")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()


async def test_changes_of_all_jobs_and_nodes_arrive_as_they_happen(live: Any) -> None:
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    async with Following(live, live.token) as stream:
        job, other = (await live.submit(name="a"))["id"], (await live.submit(name="b", project="own"))["id"]
        await live.run(job)
        assert (await live.http.post("/v1/nodes/local-1/cordon", json={"reason": "fan"})).status_code == 200
        await stream.until("cordoned", node="local-1")
        await stream.until("state", job=job, state="RUNNING", project="default")
        await stream.until("state", job=other, state="QUEUED", project="own", event=1)
    assert stream.ids == [str(each["number"]) for each in stream.notices] and set(stream.kinds) == {"change"}
    assert [each["number"] for each in stream.notices] == sorted(each["number"] for each in stream.notices)
    first = stream.notices[0]
    assert (first["topic"], first["kind"]) == ("stream", "start")
    resumed = Following(live, live.token, stream.ids[2])
    await resumed.until("cordoned", node="local-1")
    resumed.task.cancel()
    assert resumed.notices == stream.notices[3:]


async def test_a_sender_gets_only_what_it_may_read(live: Any, ana: TokenParts) -> None:
    async with Following(live, ana.value) as stream:
        await live.submit(name="hidden", project="secret")
        own = (await live.submit(name="own", project="own"))["id"]
        await stream.until("state", job=own)
    assert [each.get("project") for each in stream.notices] == [None, "own"]
    headers = {"Authorization": f"Bearer {ana.value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        listed = (await http.get("/v1/changes", params={"after": 0})).json()
        assert {each["project"] for each in listed["notices"]} == {"own"}
        assert listed["next_after"] >= listed["notices"][-1]["number"] and listed["is_complete"]


@pytest.mark.parametrize("change", ["removed", "added", "revoked"])
async def test_the_stream_ends_when_the_sender_sees_other_projects(
    live: Any, ana: TokenParts, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(stream_access, "INTERVAL_S", 0.05)
    monkeypatch.setattr(authentication, "CACHED_S", 0.0)
    store = live.store.identities
    async with Following(live, ana.value) as stream:
        match change:
            case "removed":
                await store.remove_member("own", "ana")
            case "added":
                await store.put_member(MemberRow("new", "ana", Membership(Role.VIEWER), 1.0, "test"))
            case _:
                await store.revoke_token(ana.id, 2.0)
        async with asyncio.timeout(20):
            await stream.task
    assert stream.kinds == ["change", "dropped"]


async def test_a_list_begins_at_the_newest_notice(live: Any) -> None:
    await live.submit()
    now = (await live.http.get("/v1/changes")).json()
    assert now["notices"] == [] and now["is_complete"]
    job = (await live.submit(name="next"))["id"]
    page = (await live.http.get("/v1/changes", params={"after": now["next_after"], "limit": 1})).json()
    (notice,) = page["notices"]
    assert (notice["job"], notice["kind"], notice["state"], notice["topic"]) == (job, "state", "QUEUED", "job")
    later = (await live.http.get("/v1/changes", params={"after": page["next_after"] + 100})).json()
    assert later["notices"] == [] and not later["is_complete"]
    bad = await live.http.get(FOLLOW, headers={"Last-Event-ID": "x"})
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_request")


async def test_the_client_follows_and_lists(live: Any) -> None:
    await live.submit()
    first = await live.client(lambda client: client.changes(after=0))
    assert [each.kind for each in first.notices] == ["state"]

    def follow(client: Any) -> list[str]:
        found = client.follow_changes()
        kinds = [next(found).kind]
        client.cancel(client.jobs().__iter__().__next__().id)
        return [*kinds, next(found).state]

    assert await live.client(follow) == ["start", "CANCELLED"]
