"""Limits of identities: each has its own rate, uploads and queued jobs; the owner has no rate, and the client waits."""

import asyncio
from pathlib import Path

import httpx2

from regroup.api.client.client import Client
from regroup.service.domain.credentials.api_tokens import TokenParts, generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from regroup.service.store.store import Store
from tests.api.web.test_server_config import BEARER, serving

_SCRIPT = {"workload": {"kind": "script", "entrypoint": "/a.py"}}
LIMITS = {"requests_per_s": 2.0, "request_burst": 3}


async def tokens_of(store: Store, name: str, count: int = 1) -> list[TokenParts]:
    """Create an identity, and return tokens for it."""
    await store.identities.create_identity(IdentityRow(name, IdentityKind.USER, None, False, 1.0, "test"))
    found = [generate_token() for _ in range(count)]
    for each in found:
        await store.identities.create_token(TokenRow(each.id, name, "", each.digest, None, None, 1.0, "test"))
    return found


def _http(url: str, headers: dict[str, str]) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, trust_env=False, headers=headers)


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


async def test_parts_of_archives_at_the_same_time_are_limited(tmp_path: Path) -> None:
    path, headers = f"/v1/uploads/{'0' * 64}-100", {**BEARER, "Upload-Offset": "7"}
    async with serving(tmp_path, uploads_per_identity=2) as (url, _), _http(url, headers) as http:
        slow = [await _begin_part(url, path, headers) for _ in range(2)]
        refused = await http.patch(path, content=b"x")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_uploads")
        assert "2 uploads of " in refused.json()["detail"] and refused.headers["Retry-After"] == "1"
        assert (await http.get("/v1/uploads")).status_code == 200, "other requests have no part in this limit"
        for reader, writer in slow:
            writer.write(b"x")
            assert (await reader.readline()).startswith(b"HTTP/1.1 409 ")
            writer.close()
        assert (await http.patch(path, content=b"x")).status_code == 409


async def _begin_part(
    url: str, path: str, headers: dict[str, str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request without its body, and wait until the server reads the body."""
    address = httpx2.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    sent = {"Host": address.netloc.decode(), **headers, "Content-Length": "1", "Expect": "100-continue"}
    lines = [f"PATCH {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(20.0):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    return reader, writer


async def test_queued_jobs_of_an_identity_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, queued_jobs_per_identity=2) as (url, store), _http(url, {}) as http:
        (token,) = await tokens_of(store, "ana")
        await store.identities.put_member(MemberRow("default", "ana", Membership(Role.EDITOR), 1.0, "test"))

        async def submit(number: int, **headers: str) -> httpx2.Response:
            return await http.post("/v1/jobs", json={**_SCRIPT, "name": f"job-{number}"}, headers=headers)

        http.headers["Authorization"] = f"Bearer {token.value}"
        first = await submit(1, **{"Idempotency-Key": "one"})
        assert (first.status_code, (await submit(2)).status_code) == (201, 201)
        refused = await submit(3, **{"Idempotency-Key": "three"})
        assert (refused.status_code, refused.json()["code"]) == (409, "too_many_queued_jobs")
        for part in ("2 jobs of ana", "cancel some", "REGROUP_QUEUED_JOBS_PER_IDENTITY"):
            assert part in refused.json()["detail"]
        repeated = await submit(1, **{"Idempotency-Key": "one"})
        assert (repeated.status_code, repeated.json()["id"]) == (201, first.json()["id"])
        trial = await http.post("/v1/jobs?dry_run=true", json={**_SCRIPT, "name": "job-4"})
        assert (trial.status_code, trial.json()["code"]) == (409, "too_many_queued_jobs")
        assert (await http.post("/v1/jobs/job-1/suspend")).status_code == 202
        assert (await submit(3)).status_code == 409, "a suspended job queues again later"
        assert (await http.post("/v1/jobs/job-1/cancel")).status_code == 202
        assert (await submit(3, **{"Idempotency-Key": "three"})).status_code == 201
        http.headers.update(BEARER)
        assert [(await submit(number)).status_code for number in (5, 6, 7)] == [201] * 3, "the owner has no limit"
