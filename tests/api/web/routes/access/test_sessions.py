"""Browsers: a link signs in once, the cookie needs the proof of its origin, and a session ends."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from regroup.api.web.access import SenderHeaders, cookie_name, is_page, session_cookie
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.local.api_token import user_name
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from tests.api.web.test_request_limits import tokens_of
from tests.api.web.test_server_config import BEARER, serving

PROOF = "Regroup-Session-Proof"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Browser:
    """A client that keeps cookies, and the proof that the page of the sign-in stores."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http, self.proof = http, ""

    async def sign_in(self, path: str) -> httpx2.Response:
        shown = await self.http.get(path, headers={"Sec-Fetch-Site": "none", "User-Agent": "Test\t browser"})
        if found := re.search(r'setItem\("regroup-session-proof", "([\w-]{43})"\)', shown.text):
            self.proof = found[1]
        return shown

    async def fetch(self, method: str, path: str, headers: Any = None, **options: Any) -> httpx2.Response:
        """Send a request as a script of a page of this server does."""
        sent = {**SAME_ORIGIN, PROOF: self.proof, **(headers or {})}
        return await self.http.request(method, path, headers=sent, **options)

    @property
    def cookies(self) -> dict[str, str]:
        return dict(self.http.cookies)


@asynccontextmanager
async def browser_at(url: str) -> AsyncIterator[Browser]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        yield Browser(http)


async def link_of(http: httpx2.AsyncClient, **headers: str) -> str:
    created = await http.post("/v1/session-links", headers=headers)
    assert created.status_code == 201, created.text
    return str(created.json()["path"])


# ------------------------------------------------------------ sign-in


async def test_a_link_signs_in_once_and_its_page_is_not_stored(live: Any) -> None:
    link = await link_of(live.http)
    async with browser_at(live.url) as browser:
        shown = await browser.sign_in(link)
        assert shown.status_code == 200 and 'location.replace("/console/")' in shown.text
        assert shown.headers["Cache-Control"] == "no-store" and shown.headers["Referrer-Policy"] == "no-referrer"
        policy, nonce = shown.headers["Content-Security-Policy"], re.search('nonce="([^"]+)"', shown.text)
        assert nonce and f"script-src 'nonce-{nonce[1]}'" in policy and "default-src 'none'" in policy
        code = link.partition("=")[2]
        assert code not in shown.text and code not in str(shown.headers)
        cookie = shown.headers["Set-Cookie"]
        assert cookie.startswith(f"regroup_{httpx2.URL(live.url).port}=ses_")
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert "Secure" not in cookie and "Domain" not in cookie
        assert (await browser.fetch("GET", "/v1/me")).json()["subject"] == user_name()
        assert (await browser.http.get("/docs")).status_code == 200
    async with browser_at(live.url) as other:
        again = await other.sign_in(link)
        assert again.status_code == 403 and "used before" in again.text and not other.cookies


async def test_a_wrong_code_and_an_expired_link_begin_no_session(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with browser_at(live.url) as browser:
        for path in ("/sign-in?code=x", f"/sign-in?code={'A' * 43}", "/sign-in?code=%C3%A9"):
            assert (await browser.sign_in(path)).status_code == 403
        assert (await browser.sign_in("/sign-in")).status_code == 200
        monkeypatch.setattr("regroup.service.operations.access.sessions.LINK_S", 0.0)
        assert (await browser.sign_in(await link_of(live.http))).status_code == 403
        assert not browser.cookies and not browser.proof


async def test_a_link_is_not_used_by_a_prefetch_or_by_another_page(live: Any) -> None:
    link = await link_of(live.http)
    async with browser_at(live.url) as browser:
        for headers in ({"Sec-Purpose": "prefetch;prerender"}, {"Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.example"}):  # fmt: skip
            refused = await browser.http.get(link, headers=headers)
            assert refused.status_code in (403, 421) and "Set-Cookie" not in refused.headers
        assert "address bar" in (await browser.http.get(link, headers={"Sec-Fetch-Site": "cross-site"})).text
        assert (await browser.sign_in(link)).status_code == 200


async def test_an_identity_has_few_links_at_a_time(live: Any) -> None:
    links = [await link_of(live.http) for _ in range(11)]
    async with browser_at(live.url) as browser:
        assert (await browser.sign_in(links[0])).status_code == 403
        assert (await browser.sign_in(links[1])).status_code == 200


async def test_with_tls_the_cookie_is_secure_and_bound_to_the_host(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, behind_proxy=True, public_hosts=("localhost",)) as (url, _),
        browser_at(url) as browser,
    ):
        cookie = (await browser.sign_in(await link_of(browser.http, **BEARER))).headers["Set-Cookie"]
        assert cookie.startswith("__Host-regroup=ses_")
        assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; ")) and "Domain" not in cookie
        value = cookie.partition(";")[0]
        me = await browser.http.get("/v1/me", headers={"Cookie": value, PROOF: browser.proof, **SAME_ORIGIN})
        assert me.status_code == 200


# ------------------------------------------------------------ requests with a cookie


async def test_the_cookie_alone_reads_no_data(live: Any) -> None:
    """Show that a program on another port, to which the browser sends the cookie, cannot use it."""
    await live.submit()
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(live.http))
        paths = ("/v1/jobs", "/v1/me", "/v1/sessions", "/metrics", "/v1/jobs/gpt/events?follow=true", "/nowhere")
        for proof in ({}, {PROOF: ""}, {PROOF: "A" * 43}):
            for path in paths:
                refused = await browser.http.get(path, headers={**SAME_ORIGIN, **proof})
                assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized"), (path, proof)
                basic = any(each.startswith("Basic") for each in refused.headers.get_list("WWW-Authenticate"))
                assert basic is (proof == {}), "a script shows its own page, so the browser shows no dialog"
        assert [(await browser.http.get(path)).status_code for path in ("/docs", "/openapi.json")] == [200, 200]
        assert (await browser.fetch("GET", "/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "OWN"}, 201),
    ],
)
async def test_a_change_with_a_cookie_needs_a_page_of_this_server(
    live: Any, make_spec: Any, headers: dict[str, str], status: int
) -> None:
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(live.http))
        sent = {name: live.url if value == "OWN" else value for name, value in headers.items()}
        answer = await browser.http.post("/v1/jobs", json=make_spec(), headers={**sent, PROOF: browser.proof})
        assert answer.status_code == status, answer.text
    assert len((await live.http.get("/v1/jobs")).json()["jobs"]) == (1 if status == 201 else 0)


async def test_a_token_comes_before_a_cookie(live: Any) -> None:
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(live.http))
        token = {"Authorization": f"Bearer {live.token}"}
        assert (await browser.http.post("/v1/session-links", headers=token)).status_code == 201
        assert (await browser.fetch("GET", "/v1/me", {"Authorization": "Bearer wrong"})).status_code == 401


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8500", "regroup_8500"), ("localhost", "regroup_80"), ("[::1]:9", "regroup_9"),
        ("[::1]", "regroup_80"), ("", "regroup_80"),
    ],
)  # fmt: skip
def test_servers_on_several_ports_have_one_cookie_each(host: str, name: str) -> None:
    assert cookie_name(host, has_tls=False) == name and cookie_name(host, has_tls=True) == "__Host-regroup"


@pytest.mark.parametrize(
    ("cookies", "found"),
    [
        (["regroup_1=a"], "a"), (["x=1; regroup_1=a", "y=2"], "a"), (["regroup_1=a; regroup_1=a"], "a"),
        (["regroup_1=a; regroup_1=b"], None), (["regroup_1=a", "regroup_1=b"], None), (["regroup_2=a"], None),
        (["__Host-regroup=a"], None), ([], None),
    ],
)  # fmt: skip
def test_cookies_that_contradict_each_other_are_none(cookies: list[str], found: str | None) -> None:
    sender = SenderHeaders(["localhost:1"], cookies=cookies)
    assert session_cookie(sender, has_tls=False) == found


def test_only_pages_without_data_are_pages() -> None:
    pages = ["/docs", "/docs/", "/docs/swagger-ui.css", "/openapi.json"]
    assert all(is_page("GET", path) for path in pages) and not any(is_page("POST", path) for path in pages)
    others = ["/", "/v1/jobs", "/docs/../v1/jobs", "/docs/a/b", "/docsx", "/openapi.json/x", "/v1/docs", "/docs\n"]
    assert not any(is_page("GET", path) for path in others)


# ------------------------------------------------------------ identities and ends


async def test_a_session_has_the_limits_of_its_token_and_ends_with_it(live: Any) -> None:
    (token,) = await tokens_of(live.store, "ana")
    limited = TokenRow("0" * 12, "ana", "", token.digest, "own", Role.VIEWER, 1.0, "test")
    await live.store.identities.create_token(limited)
    await live.store.identities.put_member(MemberRow("own", "ana", Membership(Role.EDITOR), 1.0, "test"))
    headers = {"Authorization": f"Bearer rg_{'0' * 12}_{token.secret}"}
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(browser.http, **headers))
        me = (await browser.fetch("GET", "/v1/me")).json()
        assert (me["subject"], me["memberships"]) == ("ana", [{"project": "own", "role": "viewer", "permissions": []}])
        assert me["session_id"].startswith("ses_")
        assert (await live.http.delete(f"/v1/tokens/{'0' * 12}")).status_code == 200
        ended = await browser.fetch("GET", "/v1/me")
        assert ended.status_code == 401
    async with browser_at(live.url) as browser:
        assert (await browser.http.post("/v1/session-links", headers=headers)).status_code == 401


async def test_programs_and_sessions_create_no_links(live: Any) -> None:
    await live.store.identities.create_identity(
        IdentityRow("ci", IdentityKind.SERVICE_ACCOUNT, None, False, 1.0, "test")
    )
    (token,) = await tokens_of(live.store, "ana")
    await live.store.identities.create_token(TokenRow("1" * 12, "ci", "", token.digest, None, None, 1.0, "test"))
    program = {"Authorization": f"Bearer rg_{'1' * 12}_{token.secret}"}
    refused = await live.http.post("/v1/session-links", headers=program)
    assert refused.status_code == 403 and "only people" in refused.json()["detail"]
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(live.http))
        refused = await browser.fetch("POST", "/v1/session-links")
        assert refused.status_code == 403 and "regroup console" in refused.json()["detail"]


async def test_sessions_are_listed_and_ended_by_their_person_and_by_operators(live: Any) -> None:
    (ana,), (bob,) = await tokens_of(live.store, "ana"), await tokens_of(live.store, "bob")
    as_ana, as_bob = ({"Authorization": f"Bearer {each.value}"} for each in (ana, bob))
    async with browser_at(live.url) as browser, browser_at(live.url) as other:
        await browser.sign_in(await link_of(browser.http, **as_ana))
        await other.sign_in(await link_of(other.http, **as_bob))
        (mine,) = (await browser.fetch("GET", "/v1/sessions")).json()["sessions"]
        assert (mine["subject"], mine["address"], mine["agent"]) == ("ana", "127.0.0.1", "Test browser")
        assert not {"digest", "proof_digest"} & mine.keys() and browser.proof not in str(mine)
        assert (await browser.fetch("GET", "/v1/sessions?subject=bob")).json()["sessions"] == []
        assert len((await live.http.get("/v1/sessions")).json()["sessions"]) == 2
        (of_bob,) = (await live.http.get("/v1/sessions?subject=bob")).json()["sessions"]
        hidden = await browser.fetch("DELETE", f"/v1/sessions/{of_bob['id']}")
        assert (hidden.status_code, hidden.json()["code"]) == (404, "not_found")
        path = f"/v1/sessions/{of_bob['id']}"
        stale = await live.http.delete(path, headers={"If-Match": '"0123456789"'})
        assert stale.status_code == 412
        assert (await live.http.delete(path, params={"dry_run": True})).status_code == 204
        assert (await other.fetch("GET", "/v1/me")).status_code == 200
        assert (await live.http.delete(path, headers={"If-Match": of_bob["etag"]})).status_code == 204
        assert (await other.fetch("GET", "/v1/me")).status_code == 401
        tried = await browser.fetch("DELETE", "/v1/sessions/current?dry_run=true")
        assert tried.status_code == 204 and browser.cookies
        left = await browser.fetch("DELETE", "/v1/sessions/current")
        assert left.status_code == 204 and not browser.cookies
        assert (await live.http.get("/v1/sessions")).json()["sessions"] == []
    records = (await live.http.get("/v1/audit")).json()["records"]
    actions = [(each["action"], each["actor"]) for each in records if each["action"].startswith("sessions.")]
    assert actions == [
        ("sessions.revoke", "ana"), ("sessions.revoke", user_name()), ("sessions.create", "bob"),
        ("sessions.link", "bob"), ("sessions.create", "ana"), ("sessions.link", "ana"),
    ]  # fmt: skip
    last = next(each for each in records if each["action"] == "sessions.revoke")
    assert last["token_id"] == mine["id"] and "digest" not in str((last["before"], last["after"]))


async def test_a_session_expires(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with browser_at(live.url) as browser:
        await browser.sign_in(await link_of(live.http))
        assert (await browser.fetch("GET", "/v1/me")).status_code == 200
        sessions, later = live.app.state.sessions, live.services.clock() + 12 * 3600.0 + 1.0
        monkeypatch.setattr(sessions, "_clock", lambda: later)
        expired = await browser.fetch("GET", "/v1/me")
        assert expired.status_code == 401 and "has expired" in expired.json()["detail"]


async def test_the_sessions_of_the_owner_end_when_the_owners_token_changes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, _), browser_at(url) as browser:
        await browser.sign_in(await link_of(browser.http, **BEARER))
        assert (await browser.fetch("GET", "/v1/me")).status_code == 200
        (cookie,) = browser.cookies.values()
        proof = browser.proof
    for token, status in (("token-of-these-connections", 200), ("another-token-of-the-owner", 401)):
        async with serving(tmp_path, owner_token=token) as (url, _), browser_at(url) as browser:
            name = cookie_name(httpx2.URL(url).netloc.decode(), has_tls=False)
            headers = {"Cookie": f"{name}={cookie}", PROOF: proof, **SAME_ORIGIN}
            assert (await browser.http.get("/v1/me", headers=headers)).status_code == status
