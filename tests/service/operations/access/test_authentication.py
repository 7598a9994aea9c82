"""Authentication: identity, end and last use of a token."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regroup.service.domain.credentials.api_tokens import generate_token, parse_token
from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.operations.access.authentication import Authentication
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from regroup.service.store.store import Store
from tests.support.servers.stores import open_store

ANA = IdentityRow("ana", IdentityKind.USER, None, False, 0.0, "olga")
PARTS = generate_token()


class Clock:
    """Unix seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


@pytest.fixture
async def token(store: Store) -> TokenRow:
    """Return the stored row of a token of ana, an editor of the project `vision`."""
    row = TokenRow(PARTS.id, "ana", "laptop", PARTS.digest, None, None, 0.0, "ana", expires_at=2000.0)
    await store.identities.create_identity(ANA)
    await store.identities.put_member(MemberRow("vision", "ana", Membership(Role.EDITOR), 0.0, "olga"))
    await store.identities.create_token(row)
    return row


@pytest.fixture
def authentication(store: Store, clock: Clock) -> Authentication:
    return Authentication(store, clock)


def test_a_token_has_a_prefix_and_does_not_show_its_secret() -> None:
    assert PARTS.value.startswith(f"rg_{PARTS.id}_") and PARTS.secret not in repr(PARTS)
    assert parse_token(PARTS.value) == PARTS and PARTS.secret not in PARTS.digest


@pytest.mark.parametrize("change", [str.upper, str.strip, lambda text: text + "x", lambda text: text[:-1]])
def test_a_text_that_is_not_a_token_has_no_parts(change) -> None:
    text = change(PARTS.value + " ") if change is str.strip else change(PARTS.value)
    assert (parse_token(text) == PARTS) == (text == PARTS.value)


async def test_a_token_proves_its_identity(authentication: Authentication, token: TokenRow) -> None:
    identity = await authentication.identify(PARTS.value)
    assert (identity.subject, identity.kind, identity.token_id) == ("ana", IdentityKind.USER, PARTS.id)
    assert identity.memberships == {"vision": Membership(Role.EDITOR)} and not identity.is_operator


async def test_another_secret_or_another_id_proves_nothing(authentication: Authentication, token: TokenRow) -> None:
    for other in (dataclasses.replace(PARTS, secret=generate_token().secret), generate_token()):
        with pytest.raises(UnauthorizedError, match="not one of this server"):
            await authentication.identify(other.value)
    with pytest.raises(UnauthorizedError, match="not one of this server"):
        await authentication.identify("")


async def test_a_token_ends_when_it_expires(authentication: Authentication, token: TokenRow, clock: Clock) -> None:
    clock.now = 1999.0
    await authentication.identify(PARTS.value)
    clock.now = 2000.0
    with pytest.raises(UnauthorizedError, match="has expired"):
        await authentication.identify(PARTS.value)


async def test_a_revoked_token_and_a_disabled_identity_are_refused_at_once(
    authentication: Authentication, store: Store, token: TokenRow
) -> None:
    await authentication.identify(PARTS.value)
    await store.identities.change_identity("ana", disabled_at=1000.0)
    authentication.forget()
    with pytest.raises(UnauthorizedError, match="'ana' is disabled"):
        await authentication.identify(PARTS.value)
    await store.identities.change_identity("ana", disabled_at=None)
    await store.identities.revoke_token(PARTS.id, 1000.0)
    authentication.forget()
    with pytest.raises(UnauthorizedError, match="is revoked"):
        await authentication.identify(PARTS.value)


async def test_an_operator_is_an_admin_everywhere_unless_the_token_is_limited(
    authentication: Authentication, store: Store, token: TokenRow
) -> None:
    await store.identities.change_identity("ana", is_operator=True)
    identity = await authentication.identify(PARTS.value)
    assert identity.is_operator and identity.everywhere is Role.ADMIN
    limited = generate_token()
    row = dataclasses.replace(token, id=limited.id, digest=limited.digest, project="vision", role=Role.VIEWER)
    await store.identities.create_token(row)
    identity = await authentication.identify(limited.value)
    assert not identity.is_operator and identity.everywhere is None
    assert identity.memberships == {"vision": Membership(Role.VIEWER)}


async def test_the_last_use_is_recorded_once_a_minute(
    authentication: Authentication, store: Store, token: TokenRow, clock: Clock
) -> None:
    used: list[float | None] = []
    for clock.now in (1000.0, 1030.0, 1059.0, 1060.0):
        authentication.forget()
        await authentication.identify(PARTS.value)
        used.append((await store.identities.token(PARTS.id)).used_at)
    assert used == [1000.0, 1000.0, 1000.0, 1060.0]
