"""Rates of requests: each identity has its own, the owner has none, and the client waits."""

import asyncio
from pathlib import Path

import httpx2

from regroup.api.client.client import Client
from regroup.service.domain.api_tokens import TokenParts, generate_token
from regroup.service.domain.identity import IdentityKind
from regroup.service.store.rows.identity_rows import IdentityRow, TokenRow
from regroup.service.store.store import Store
from tests.api.web.test_server_config import BEARER, serving

LIMITS = {"requests_per_s": 2.0, "request_burst": 3}


async def tokens_of(store: Store, name: str, count: int = 1) -> list[TokenParts]:
    """Create an identity, and return tokens for it."""
    await store.identities.create_identity(IdentityRow(name, IdentityKind.USER, None, False, 1.0, "test"))
    found = [generate_token() for _ in range(count)]
    for each in found:
        await store.identities.create_token(TokenRow(each.id, name, "", each.digest, None, None, 1.0, "test"))
    return found


async def statuses(url: str, token: str, count: int) -> list[httpx2.Response]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, headers={"Authorization": f"Bearer {token}"}) as http:
        return [await http.get("/v1/me") for _ in range(count)]


async def test_all_tokens_of_an_identity_share_its_rate(tmp_path: Path) -> None:
    async with serving(tmp_path, **LIMITS) as (url, store):
        first, second = await tokens_of(store, "ana", 2)
        (other,) = await tokens_of(store, "bob")
        assert [each.status_code for each in await statuses(url, first.value, 2)] == [200, 200]
        allowed, refused = await statuses(url, second.value, 2)
        assert (allowed.status_code, refused.status_code) == (200, 429)
        assert refused.json()["code"] == "too_many_requests" and refused.headers["Retry-After"] == "1"
        assert "send the next one in" in refused.json()["detail"]
        assert [each.status_code for each in await statuses(url, other.value, 1)] == [200]


async def test_the_owner_and_the_probes_have_no_rate(tmp_path: Path) -> None:
    async with serving(tmp_path, **LIMITS) as (url, _), httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        owner = [(await http.get("/v1/me", headers=BEARER)).status_code for _ in range(10)]
        assert owner == [200] * 10
        assert [(await http.get("/livez")).status_code for _ in range(10)] == [200] * 10


async def test_no_limit_is_possible(tmp_path: Path) -> None:
    async with serving(tmp_path, requests_per_s=0, request_burst=1) as (url, store):
        (token,) = await tokens_of(store, "ana")
        assert {each.status_code for each in await statuses(url, token.value, 5)} == {200}


async def test_the_client_waits_as_long_as_the_server_asks(tmp_path: Path) -> None:
    def use(url: str, token: str) -> int:
        with Client(url, token=token, patience_s=20.0) as client:
            return len([client.me() for _ in range(5)])

    async with serving(tmp_path, **LIMITS) as (url, store):
        (token,) = await tokens_of(store, "ana")
        began_s = asyncio.get_running_loop().time()
        assert await asyncio.to_thread(use, url, token.value) == 5
        assert asyncio.get_running_loop().time() - began_s > 0.9, "two requests beyond the burst"
