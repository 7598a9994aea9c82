"""Open streams end when their sender loses access."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError
from regroup.api.web import stream_access
from regroup.service.domain.credentials.api_tokens import TokenParts, generate_token
from regroup.service.domain.errors import ForbiddenError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.operations.access import authentication
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow

_PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check streams often, and without the cache of tokens."""
    monkeypatch.setattr(stream_access, "INTERVAL_S", 0.05)
    monkeypatch.setattr(authentication, "CACHED_S", 0.0)


@pytest.fixture
async def ana(live: Any) -> TokenParts:
    """Token of an editor of the project of a running job."""
    parts, store = generate_token(), live.store.identities
    await store.create_identity(IdentityRow("ana", IdentityKind.USER, None, False, 1.0, "test"))
    await store.put_member(MemberRow("own", "ana", Membership(Role.EDITOR, frozenset({"exec"})), 1.0, "test"))
    await store.create_token(TokenRow(parts.id, "ana", "", parts.digest, None, None, 1.0, "test"))
    await live.run((await live.submit(name="gpt", project="own"))["id"])
    return parts


@contextlib.asynccontextmanager
async def stream(live: Any, token: TokenParts, method: str, path: str, **options: Any) -> AsyncIterator[Any]:
    """Open a stream, and read its first bytes."""
    headers = {"Authorization": f"Bearer {token.value}", "Accept": "text/event-stream"}
    async with (
        httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http,
        http.stream(method, path, timeout=_PATIENCE_S, **options) as response,
    ):
        assert response.status_code == 200, await response.aread()
        chunks = response.aiter_text()
        assert await anext(chunks)
        yield chunks


LOSSES = ["revoked", "disabled", "expired", "removed", "lowered"]


async def lose(live: Any, token: TokenParts, loss: str) -> None:
    store = live.store.identities
    match loss:
        case "revoked":
            await store.revoke_token(token.id, 2.0)
        case "disabled":
            await store.change_identity("ana", disabled_at=2.0)
        case "expired":
            live.services.authentication._clock = lambda: 4e9
        case "removed":
            await store.remove_member("own", "ana")
        case _:
            await store.put_member(MemberRow("own", "ana", Membership(Role.VIEWER), 1.0, "test"))


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_command_ends_with_the_access_of_its_sender(live: Any, ana: TokenParts, loss: str) -> None:
    request = {"params": {"project": "own"}, "json": {"command": ["sleep", "1000"]}}
    if loss == "expired":
        await live.store.identities.revoke_token(ana.id, 1.0)
        row = TokenRow((ana := generate_token()).id, "ana", "", ana.digest, None, None, 1.0, "test", expires_at=3e9)
        await live.store.identities.create_token(row)
    async with stream(live, ana, "POST", "/v1/jobs/gpt/exec", **request) as chunks:
        await lose(live, ana, loss)
        async with asyncio.timeout(_PATIENCE_S):
            rest = "".join([chunk async for chunk in chunks])
    assert "event: dropped" in rest and "exit" not in rest
    assert ("no longer has the permission `exec`" in rest) == (loss in ("removed", "lowered")), rest


async def test_events_continue_for_a_lower_role_that_suffices(live: Any, ana: TokenParts, job_events: Any) -> None:
    path = {"params": {"project": "own", "follow": "true"}}
    async with stream(live, ana, "GET", "/v1/jobs/gpt/events", **path) as chunks:
        await lose(live, ana, "lowered")
        await asyncio.sleep(0.3)
        job = (await live.http.get("/v1/jobs/gpt", params={"project": "own"})).json()["id"]
        await live.report(job, job_events.state("SUCCEEDED", "completed"))
        async with asyncio.timeout(_PATIENCE_S):
            rest = "".join([chunk async for chunk in chunks])
    assert "SUCCEEDED" in rest and "dropped" not in rest


async def test_the_client_raises_the_reason(live: Any, ana: TokenParts) -> None:
    def follow() -> None:
        with Client(live.url, token=ana.value, patience_s=5.0) as client:
            for event in client.events("gpt", follow=True, project="own"):
                seen.append(event)

    seen: list[Any] = []
    following = asyncio.create_task(asyncio.to_thread(follow))
    async with asyncio.timeout(_PATIENCE_S):
        while not seen:  # noqa: ASYNC110  # another thread fills it
            await asyncio.sleep(0.01)
        await lose(live, ana, "revoked")
        with pytest.raises(ApiError, match="is revoked"):
            await following


async def test_the_client_of_a_command_raises_the_reason(live: Any, ana: TokenParts) -> None:
    def run() -> None:
        with Client(live.url, token=ana.value, patience_s=5.0) as client:
            for event in client.exec("gpt", ["sleep", "1000"], project="own"):
                seen.append(event)

    seen: list[Any] = []
    running = asyncio.create_task(asyncio.to_thread(run))
    async with asyncio.timeout(_PATIENCE_S):
        while not seen:  # noqa: ASYNC110  # another thread fills it
            await asyncio.sleep(0.01)
        await lose(live, ana, "removed")
        with pytest.raises(ForbiddenError, match=r"no longer has the permission `exec`.*stops the command within"):
            await running
