"""Requests with tokens of an OpenID Connect issuer: every route refuses one that is not for this server."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from regroup.api.app import openapi
from regroup.api.web.access import OPEN_PATHS
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.local.api_token import user_name
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow
from tests.api.web.routes.access.test_sessions import browser_at, link_of
from tests.api.web.test_permissions import filled
from tests.api.web.test_server_config import TOKEN, serving
from tests.support.servers.oidc_issuer import AUDIENCE, Issuer, running_issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_member_of_a_group_works_in_its_project(tmp_path: Path, issuer: Issuer) -> None:
    async with serving(tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE) as (url, store):
        await store.identities.put_member(MemberRow("vision", "group:research", Membership(Role.EDITOR), 1.0, "test"))
        token = bearer(issuer.token(groups=["research"]))
        async with httpx2.AsyncClient(base_url=url, trust_env=False, headers=token) as http:
            me = (await http.get("/v1/me")).json()
            assert (me["subject"], me["kind"]) == ("ana@example.com", "user")
            assert me["memberships"] == [{"project": "vision", "role": "editor", "permissions": []}]
            assert (await http.get("/v1/jobs", params={"project": "vision"})).status_code == 200
            assert (await http.get("/metrics")).status_code == 403
        await store.identities.remove_member("vision", "group:research")


@pytest.mark.parametrize(
    "claims",
    [{"aud": "another"}, {"iss": "https://another"}, {"exp": time.time() - 3600}, {"email": user_name()}],
    ids=["wrong audience", "wrong issuer", "expired", "name of the owner"],
)
async def test_no_route_answers_a_token_that_is_not_for_it(
    tmp_path: Path, issuer: Issuer, claims: dict[str, object]
) -> None:
    async with serving(tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE) as (url, _):
        token = bearer(issuer.token(**claims))
        async with httpx2.AsyncClient(base_url=url, trust_env=False, headers=token) as http:
            for path, methods in openapi()["paths"].items():
                for method in methods:
                    answer = await http.request(method.upper(), filled(path))
                    expected = 200 if path in OPEN_PATHS else 401
                    assert answer.status_code == expected, (method, path, answer.text)


async def test_without_an_issuer_no_jwt_is_accepted(tmp_path: Path, issuer: Issuer) -> None:
    token = bearer(issuer.token())
    async with serving(tmp_path) as (url, _), httpx2.AsyncClient(base_url=url, trust_env=False, headers=token) as http:
        assert (await http.get("/v1/me")).status_code == 401


async def test_a_person_of_the_issuer_signs_a_browser_in_with_the_same_groups(tmp_path: Path, issuer: Issuer) -> None:
    settings = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_operator_groups": ("admins",)}
    async with serving(tmp_path, **settings) as (url, store), browser_at(url) as browser:
        await store.identities.put_member(MemberRow("vision", "group:research", Membership(Role.EDITOR), 1.0, "test"))
        token = bearer(issuer.token(groups=["research", "admins"]))
        await browser.sign_in(await link_of(browser.http, **token))
        me = (await browser.fetch("GET", "/v1/me")).json()
        assert (me["subject"], me["is_operator"]) == ("ana@example.com", True)
        assert me["memberships"] == [{"project": "vision", "role": "editor", "permissions": []}]
        await store.identities.create_identity(IdentityRow("ana@example.com", IdentityKind.USER, None, False, 1.0, ""))
        await store.identities.change_identity("ana@example.com", disabled_at=1.0)
        async with asyncio.timeout(20.0):
            while True:  # the server reads the roles of a person again after two seconds
                if (await browser.fetch("GET", "/v1/me")).status_code == 401:
                    break
                await asyncio.sleep(0.1)
    async with serving(tmp_path) as (url, _), browser_at(url) as other:
        cookie = f"regroup_{httpx2.URL(url).port}={next(iter(browser.cookies.values()))}"
        refused = await other.http.get("/v1/me", headers={"Cookie": cookie, "Regroup-Session-Proof": browser.proof})
        assert refused.status_code == 401 and "identity provider" in refused.json()["detail"]


async def test_a_disabled_person_is_refused_with_the_next_request(tmp_path: Path, issuer: Issuer) -> None:
    member = "/v1/projects/vision/members/ana@example.com"
    async with (
        serving(tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE) as (url, _),
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=bearer(TOKEN)) as owner,
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=bearer(issuer.token())) as ana,
    ):
        created = await owner.post("/v1/identities", json={"subject": "ana@example.com", "kind": "user"})
        assert created.status_code == 201
        for _ in range(3):
            assert (await ana.get("/v1/me")).status_code == 200
            await owner.patch("/v1/identities/ana@example.com", json={"disabled": True})
            assert (await ana.get("/v1/me")).status_code == 401
            await owner.patch("/v1/identities/ana@example.com", json={"disabled": False})
        assert (await owner.put(member, json={"role": "viewer"})).is_success
        assert (await ana.get("/v1/projects/vision")).status_code == 200
        await owner.delete(member)
        assert (await ana.get("/v1/projects/vision")).status_code == 404
