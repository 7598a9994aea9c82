"""Tokens of an OpenID Connect issuer, which runs as a process: signatures, rotation, outages, and local identities."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.operations.access import external_tokens, issuer_keys
from regroup.service.operations.access.external_tokens import MAX_TOKEN_CHARACTERS, ExternalTokens
from regroup.service.operations.access.issuer_keys import IssuerKeys
from regroup.service.policy.access.external import ClaimRules
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow
from regroup.service.store.store import Store
from tests.support.servers.oidc_issuer import AUDIENCE, Issuer, running_issuer
from tests.support.servers.stores import open_store


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture(autouse=True)
def without_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_tokens, "_CACHED_S", 0.0)
    monkeypatch.setattr(issuer_keys, "_RETRY_S", 0.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


@pytest.fixture
def tokens(store: Store, issuer: Issuer) -> ExternalTokens:
    rules = ClaimRules(issuer.url, AUDIENCE, operator_groups=frozenset({"platform"}))
    return ExternalTokens(store, rules, None, time.time)


async def test_a_token_has_the_roles_of_name_and_groups(store: Store, tokens: ExternalTokens, issuer: Issuer) -> None:
    group = MemberRow("vision", "group:vision", Membership(Role.EDITOR), 1.0, "test")
    await store.identities.put_member(group)
    identity = await tokens.identify(issuer.token(groups=["vision", "others"]))
    assert (identity.subject, identity.kind) == ("ana@example.com", IdentityKind.USER)
    assert identity.memberships == {"vision": Membership(Role.EDITOR)} and not identity.is_operator
    assert (await tokens.identify(issuer.token(groups=["platform"]))).is_operator
    assert (await tokens.identify(issuer.token(groups=None))).memberships == {}


async def test_a_local_identity_of_the_same_name_counts(store: Store, tokens: ExternalTokens, issuer: Issuer) -> None:
    ana = IdentityRow("ana@example.com", IdentityKind.USER, None, True, 1.0, "test")
    await store.identities.create_identity(ana)
    assert (await tokens.identify(issuer.token())).is_operator
    await store.identities.change_identity("ana@example.com", disabled_at=2.0)
    with pytest.raises(UnauthorizedError, match="is disabled"):
        await tokens.identify(issuer.token())


async def test_a_person_cannot_take_another_name(store: Store, tokens: ExternalTokens, issuer: Issuer) -> None:
    account = IdentityRow("ci", IdentityKind.SERVICE_ACCOUNT, "vision", False, 1.0, "test")
    await store.identities.create_identity(account)
    for name, text in (("ci", "is a service account"), ("Controller", "is reserved")):
        with pytest.raises(UnauthorizedError, match=text):
            await tokens.identify(issuer.token(email=name))


@pytest.mark.parametrize("kind", ["rsa", "ec"])
async def test_a_rotated_key_is_read_at_its_first_use(tokens: ExternalTokens, issuer: Issuer, kind: str) -> None:
    before = issuer.token()
    await tokens.identify(before)
    issuer.rotate(kind)
    await tokens.identify(issuer.token())
    await tokens.identify(before)
    issuer.rotate("rsa", forget=True)
    await tokens.identify(issuer.token())


async def test_keys_are_read_once_for_many_tokens(
    tokens: ExternalTokens, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "_RETRY_S", 60.0)
    begin = issuer.count_reads()
    for _ in range(5):
        await tokens.identify(issuer.token())
    for _ in range(5):
        with pytest.raises(UnauthorizedError):
            await tokens.identify(changed(issuer.token(), header={"kid": "unknown"}))
    assert issuer.count_reads() == begin + 1


async def test_a_slow_issuer_delays_only_tokens_with_unknown_keys(
    tokens: ExternalTokens, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issuer.token()
    await tokens.identify(token)
    is_reading, answers = asyncio.Event(), asyncio.Event()

    async def read_slowly(keys: IssuerKeys) -> None:
        is_reading.set()
        await answers.wait()
        raise ValueError("the issuer does not answer")

    monkeypatch.setattr(IssuerKeys, "_fetch", read_slowly)
    waiting = asyncio.create_task(tokens.identify(changed(token, header={"kid": "unknown"})))
    async with asyncio.timeout(10):
        await is_reading.wait()
        assert (await tokens.identify(token)).subject == "ana@example.com"
        answers.set()
        with pytest.raises(UnauthorizedError):
            await waiting


async def test_known_keys_outlast_an_outage_of_the_issuer(tokens: ExternalTokens, issuer: Issuer, store: Store) -> None:
    token = issuer.token()
    await tokens.identify(token)
    issuer.set_broken(True)
    try:
        await tokens.identify(token)
        with pytest.raises(UnauthorizedError):
            await tokens.identify(changed(token, header={"kid": "unknown"}))
        fresh = ExternalTokens(store, ClaimRules(issuer.url, AUDIENCE), None, time.time)
        with pytest.raises(UnavailableError, match="503"):
            await fresh.identify(token)
    finally:
        issuer.set_broken(False)
    assert await fresh.identify(token)


@pytest.mark.parametrize(
    "forgery",
    [
        {"payload": {"email": "eve@example.com"}},
        {"header": {"alg": "none"}},
        {"header": {"alg": "HS256"}},
        {"header": {"alg": "ES256"}},
        {"header": {"kid": None}, "payload": {"email": "eve@example.com"}},
        {"signature": ""},
        {"signature": "AAAA"},
    ],
)
async def test_a_forged_token_is_refused(tokens: ExternalTokens, issuer: Issuer, forgery: dict[str, Any]) -> None:
    with pytest.raises(UnauthorizedError):
        await tokens.identify(changed(issuer.token(), **forgery))


@pytest.mark.parametrize(
    "text", ["..", "a.b.c", "e30.e30.", "e30.W10.AAAA", "\x00.\x00.\x00", "é.é.é", "A" * 50 + ".." + "A"]
)
async def test_a_text_that_is_not_a_token_is_refused(tokens: ExternalTokens, text: str) -> None:
    with pytest.raises(UnauthorizedError):
        await tokens.identify(text)


async def test_a_long_token_is_refused_before_it_is_read(tokens: ExternalTokens) -> None:
    with pytest.raises(UnauthorizedError, match="characters"):
        await tokens.identify("a.b." + "c" * MAX_TOKEN_CHARACTERS)


def changed(token: str, *, header: Any = None, payload: Any = None, signature: str | None = None) -> str:
    """Return the token with changed parts, and without a new signature. None removes a field."""
    parts = token.split(".")
    for place, change in ((0, header), (1, payload)):
        if change is not None:
            data = {**json.loads(base64.urlsafe_b64decode(parts[place] + "==")), **change}
            kept = {name: value for name, value in data.items() if value is not None}
            parts[place] = base64.urlsafe_b64encode(json.dumps(kept).encode()).decode().rstrip("=")
    return ".".join([*parts[:2], parts[2] if signature is None else signature])
