"""Delivery over HTTP: refused addresses, rebinding, redirects, TLS, silence and long answers."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.hooks import DeliveryState, HookEvent, HookKind
from regroup.service.operations.hooks import http_sender
from regroup.service.operations.hooks.http_sender import HttpSender
from regroup.service.policy.hooks.destinations import DestinationRules
from regroup.service.policy.hooks.retries import Attempt
from regroup.service.store.rows.hook_rows import ClaimedDelivery, DeliveryRow, HookRow
from tests.support.inputs.certificates import write_certificate
from tests.support.servers.hook_receiver import HookReceiver, running_receiver

LOOPBACK = DestinationRules((ip_network("127.0.0.0/8"),))
NOW = 1_700_000_000.0


def claimed(url: str, kind: HookKind = HookKind.CLOUDEVENTS) -> ClaimedDelivery:
    event = HookEvent("m1", "test", "vision", 5.0, "ana", {"message": "hello"})
    secret = "whsec_c2VjcmV0" if kind is HookKind.CLOUDEVENTS else None
    hook = HookRow("hook_1", "vision", "ci", kind, url, (), ("state",), {}, True, secret, 1.0, "ana")
    return ClaimedDelivery(DeliveryRow(1, "hook_1", "m1", event, DeliveryState.PENDING, 1, 1.0, 0.0), hook)


@pytest.fixture
async def send() -> AsyncIterator[Any]:
    senders: list[HttpSender] = []
    with ThreadPoolExecutor(2) as threads:

        async def attempt(url: str, rules: DestinationRules = LOOPBACK, **options: Any) -> Attempt:
            senders.append(HttpSender(rules, threads))
            return await senders[-1].send(claimed(url, **options), NOW)

        yield attempt
        for each in senders:
            await each.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1", "0x7f000001"])
async def test_no_spelling_of_a_private_address_is_reached(send: Any, receiver: HookReceiver, host: str):
    attempt = await send(receiver.url(host=host), DestinationRules((ip_network("10.0.0.0/8"),)))
    assert attempt.is_final and "is not a public address" in attempt.error
    assert receiver.received == []


async def test_the_checked_address_is_the_one_that_is_used(
    send: Any, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
):
    """Resolve a name to an allowed address first, and to another one later (DNS rebinding)."""
    resolve, resolved = socket.getaddrinfo, list[str]()

    def rebind(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "rebind.test":
            return resolve(host, *arguments, **options)
        resolved.append(host)
        return resolve("127.0.0.1" if len(resolved) == 1 else "127.0.0.99", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    attempt = await send(receiver.url(host="rebind.test"))
    assert attempt.is_accepted and resolved == ["rebind.test"], "the name is resolved once"
    assert receiver.received[0].headers["host"] == f"rebind.test:{receiver.port}"


async def test_a_name_with_one_private_address_reaches_only_the_others(
    send: Any, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
):
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in ("10.0.0.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: entries)
    assert (await send(receiver.url(host="two.test"))).is_accepted
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: entries[:1])
    assert (await send(receiver.url(host="one.test"))).is_final


async def test_a_redirect_is_not_followed(send: Any, receiver: HookReceiver):
    receiver.answers = [(307, {"Location": receiver.url("/other")})]
    attempt = await send(receiver.url())
    assert not attempt.is_accepted and "307" in attempt.error and len(receiver.received) == 1


async def test_the_content_of_an_answer_is_not_read(send: Any, receiver: HookReceiver):
    receiver.answers = [(200, {"Content-Length": str(10**12)})]
    assert (await asyncio.wait_for(send(receiver.url()), 5)).is_accepted


async def test_a_receiver_that_does_not_answer_ends_the_attempt(
    send: Any, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_sender, "ATTEMPT_TIMEOUT_S", 0.3)
    receiver.gate.clear()
    attempt = await send(receiver.url())
    assert "did not answer within 0.3 s" in attempt.error and not attempt.is_final


async def test_a_closed_port_and_an_unknown_name_are_described_without_the_url(send: Any):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/in?token=secret", "http://name.invalid/in?token=secret"):
        attempt = await send(url)
        assert "cannot be reached" in attempt.error and "secret" not in attempt.error and not attempt.is_final


@pytest.mark.parametrize("host", [f"{'a' * 64}.test", "a..b"])
async def test_a_name_that_no_server_can_have_is_final(send: Any, host: str):
    assert (await send(f"http://{host}/in")).error != ""


async def test_only_programs_get_a_signature(send: Any, receiver: HookReceiver):
    await send(receiver.url(), kind=HookKind.CLOUDEVENTS)
    await send(receiver.url(), kind=HookKind.SLACK)
    await send(receiver.url(), kind=HookKind.TEAMS)
    signed = ["webhook-signature" in each.headers for each in receiver.received]
    assert signed == [True, False, False]
    assert "text" in receiver.received[1].json and "attachments" in receiver.received[2].json


@pytest.mark.parametrize(("name", "is_accepted"), [("receiver.test", True), ("other.test", False)])
async def test_tls_verifies_the_name_although_the_connection_goes_to_an_address(
    send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_accepted: bool
):
    files = write_certificate(tmp_path, names=("receiver.test",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.certificate))
    loopback = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [loopback])
    async with running_receiver(context) as receiver:
        attempt = await send(receiver.url(host=name))
    assert attempt.is_accepted is is_accepted, attempt.error
    assert len(receiver.received) == int(is_accepted)
