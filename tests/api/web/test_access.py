"""Access: the token on every route, foreign hosts and origins. Tests of the real server and of the decision."""

import asyncio
import base64
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from regroup.api.app import openapi
from regroup.api.web.access import OPEN_PATHS, SenderHeaders, is_loopback, refusal_of, token_of

TOKEN = "t" * 43
HOST = "127.0.0.1:8500"
ROUTES = [(method.upper(), path) for path, methods in openapi()["paths"].items() for method in methods]
STREAMS = ["/v1/jobs/gpt/events?follow=true", "/v1/jobs/gpt/steps?follow=true", "/v1/jobs/gpt/logs?follow=true"]


def decided(**headers: Any) -> str:
    """Return the code of the refusal, or an empty text."""
    refusal = refusal_of(SenderHeaders(**{"hosts": [HOST], **headers}))
    return "" if refusal is None else refusal.code


def basic(password: str, user: str = "ann") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def anonymous(live: Any, method: str, path: str, **options: Any) -> httpx2.Response:
    """Send a request as a program without the token."""
    async with httpx2.AsyncClient(base_url=live.url, trust_env=False) as http:
        return await http.request(method, path, **options)


# ------------------------------------------------------------ token


def test_the_routes_of_the_api_are_walked() -> None:
    assert len(ROUTES) > 40 and {"/livez", "/readyz", "/v1/sign-in", "/sign-in"} == OPEN_PATHS


@pytest.mark.parametrize("authorization", ["", f"Bearer {'u' * 43}", basic("u" * 43)])
async def test_no_route_but_the_probes_answers_without_the_token(live: Any, authorization: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    others = ["/openapi.json", "/docs", "/sign-in", "/nowhere", "/v1/livez", "/consolex", "/livez/", *STREAMS]
    walked = [*ROUTES, *(("GET", path) for path in others)]
    for method, path in walked:
        answer = await anonymous(live, method, re.sub("{[^}]*}", "gpt", path), headers=headers)
        assert answer.status_code == (200 if path in OPEN_PATHS else 401), (method, path)


async def test_a_refusal_names_the_file_and_the_variables(live: Any) -> None:
    answer = await anonymous(live, "GET", "/v1/jobs")
    problem = answer.json()
    assert (problem["code"], answer.headers["Content-Type"]) == ("unauthorized", "application/problem+json")
    for remedy in ("api.token", "REGROUP_TOKEN", "REGROUP_TOKEN_FILE", "--token-file", "Authorization: Bearer"):
        assert remedy in problem["detail"]
    assert answer.headers.get_list("WWW-Authenticate") == ['Bearer realm="regroup"', 'Basic realm="regroup"']
    assert live.token not in answer.text


@pytest.mark.parametrize("kind", ["bearer", "BEARER", "basic"])
async def test_a_program_sends_the_token_and_a_browser_sends_it_as_the_password(live: Any, kind: str) -> None:
    given = basic(live.token) if kind == "basic" else f"{kind} {live.token}"
    assert (await anonymous(live, "GET", "/v1/jobs", headers={"Authorization": given})).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        [], [""], ["Bearer"], ["Bearer "], [f"Bearer {TOKEN}x"], [f"Bearer {TOKEN[:-1]}"], [TOKEN], [f"Token {TOKEN}"],
        ["Basic"], ["Basic ?"], [basic("")], [basic("x", TOKEN)], ["Basic //8="], ["Bearer \u00fc"],
        [f"Bearer {TOKEN}", "Bearer x"],
    ],
)  # fmt: skip
def test_everything_but_the_token_is_another_token_or_none(given: list[str]) -> None:
    assert token_of(SenderHeaders([HOST], authorizations=given)) != TOKEN
    assert token_of(SenderHeaders([HOST], authorizations=[f"Bearer {TOKEN}", basic(TOKEN)])) == TOKEN


async def test_a_websocket_is_refused(live: Any) -> None:
    address = urlsplit(live.url)
    request = (
        f"GET /v1/jobs HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    def answer() -> bytes:
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(request.encode())
            return connection.recv(4096)

    assert (await asyncio.to_thread(answer)).split()[1] in (b"401", b"403")


# ------------------------------------------------------------ hosts


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8500", "127.0.0.1", "127.3.2.1:1", "[::1]", "[::1]:8500", "127.0.0.1:65535"]
)
def test_loopback_hosts_are_allowed(host: str) -> None:
    assert is_loopback(host) and decided(hosts=[host]) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example:80", "127.0.0.1.nip.io", "[bad", "", "evil@localhost", "localhost#x",
        "localhost/x", "localhost?x", "localhost:8500:1", "localhost:", "localhost.", "127.1", "0x7f.1", "2130706433",
        "0.0.0.0", "[::]", "localhost evil", "localhost\\evil", "10.0.0.1",
    ],
)  # fmt: skip
def test_other_hosts_are_refused_even_with_the_token(host: str) -> None:
    assert decided(hosts=[host], authorizations=[f"Bearer {TOKEN}"]) == decided(hosts=[host]) == "host_not_allowed"


def test_a_request_has_one_host() -> None:
    assert decided(hosts=[]) == decided(hosts=[HOST, "evil.example"]) == "host_not_allowed"


async def test_a_foreign_host_is_answered_with_a_problem(live: Any) -> None:
    answer = await live.http.get("/livez", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (421, "host_not_allowed")


# ------------------------------------------------------------ pages of other origins


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "null", "file://", "http://127.0.0.1:3000", "http://localhost:8500", "http://127.0.0.1",
        "http://[::1]:8500", "http://127.0.0.1:8500.evil.example", "http://evil@127.0.0.1:8500", "ftp://127.0.0.1:8500",
        "http://[", "",
    ],
)  # fmt: skip
def test_another_origin_is_refused_even_with_the_token(origin: str) -> None:
    assert decided(origins=[origin], authorizations=[f"Bearer {TOKEN}"]) == "forbidden"


def test_the_own_origin_and_programs_without_one_are_allowed() -> None:
    own = {"origins": ["http://127.0.0.1:8500"]}
    for headers in ({}, own, {"fetch_sites": ["same-origin"]}, {"fetch_sites": ["none"]}):
        assert decided(authorizations=[f"Bearer {TOKEN}"], **headers) == ""
    assert decided(origins=["http://127.0.0.1:8500", "http://127.0.0.1:3000"]) == "forbidden"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "anything"])
def test_another_site_is_refused_even_with_the_token(site: str) -> None:
    assert decided(fetch_sites=[site], authorizations=[f"Bearer {TOKEN}"]) == "forbidden"


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_a_page_of_another_port_changes_nothing(live: Any, headers: dict[str, str]) -> None:
    # A browser adds the password that a person typed to requests that other pages send.
    job = await live.submit()
    for path in (f"/v1/jobs/{job['id']}/cancel", f"/v1/jobs/{job['id']}/suspend", "/v1/nodes/n1/cordon"):
        answer = await live.http.post(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await live.http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "QUEUED"


# ------------------------------------------------------------ public names


@pytest.mark.parametrize(
    ("host", "is_accepted"),
    [
        ("train.example.org", True),
        ("Train.Example.org:443", True),
        ("127.0.0.1:8500", True),
        ("example.org", False),
        ("evil.train.example.org", False),
        ("train.example.org.evil", False),
        ("train.example.org:8500:1", False),
        ("train.example.org@evil", False),
        ("", False),
    ],
)
def test_only_names_of_the_server_are_accepted(host: str, is_accepted: bool) -> None:
    refusal = refusal_of(SenderHeaders(hosts=[host]), ("train.example.org",))
    assert (refusal is None) == is_accepted
    if refusal is not None:
        assert refusal.code == "host_not_allowed"
        assert "it accepts 127.0.0.1, localhost, train.example.org" in refusal.detail


def test_a_page_of_another_name_of_the_server_is_foreign() -> None:
    sender = SenderHeaders(hosts=["a.example"], origins=["https://b.example"])
    refusal = refusal_of(sender, ("a.example", "b.example"))
    assert refusal is not None and refusal.code == "forbidden"
    own = SenderHeaders(hosts=["a.example"], origins=["https://a.example"], fetch_sites=["same-origin"])
    assert refusal_of(own, ("a.example",)) is None
