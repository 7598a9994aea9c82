"""Identities, members and tokens, on SQLite and on a real PostgreSQL."""

import dataclasses

import pytest

from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, StoredToken, TokenRow
from regroup.service.store.store import Store

ANA = IdentityRow("ana", IdentityKind.USER, None, False, 1.0, "olga")
CI = IdentityRow("ci", IdentityKind.SERVICE_ACCOUNT, "vision", False, 2.0, "ana")
IN_VISION = MemberRow("vision", "ana", Membership(Role.EDITOR, frozenset({"exec", "secrets:hub"})), 3.0, "olga")
TOKEN = TokenRow("t1", "ana", "laptop", "d" * 64, "vision", Role.VIEWER, 4.0, "ana", expires_at=100.0)


@pytest.fixture
async def people(store: Store) -> None:
    for row in (ANA, CI):
        await store.identities.create_identity(row)
    await store.identities.put_member(IN_VISION)


async def test_an_identity_is_created_once_changed_and_found(store: Store, people: None) -> None:
    assert await store.identities.identities() == [ANA, CI]
    with pytest.raises(ConflictError, match="'ana' exists"):
        await store.identities.create_identity(ANA)
    changed = await store.identities.change_identity("ana", is_operator=True, disabled_at=5.0)
    assert changed == dataclasses.replace(ANA, is_operator=True, disabled_at=5.0)
    assert await store.identities.identity("ana") == changed
    for missing in (store.identities.identity("bob"), store.identities.change_identity("bob", is_operator=True)):
        with pytest.raises(NotFoundError, match="'bob'"):
            await missing


async def test_a_membership_is_replaced_and_removed(store: Store, people: None) -> None:
    admin = dataclasses.replace(IN_VISION, membership=Membership(Role.ADMIN), created_at=9.0)
    await store.identities.put_member(admin)
    group = dataclasses.replace(IN_VISION, project="speech", subject="group:researchers")
    await store.identities.put_member(group)
    assert await store.identities.members("vision") == [admin] and await store.identities.members("none") == []
    assert await store.identities.memberships(["ana", "group:researchers"]) == [group, admin]
    with pytest.raises(NotFoundError, match="'bob'"):
        await store.identities.put_member(dataclasses.replace(IN_VISION, subject="bob"))
    await store.identities.remove_member("vision", "ana")
    with pytest.raises(NotFoundError, match="not a member"):
        await store.identities.remove_member("vision", "ana")


async def test_a_token_is_read_with_everything_that_decides_about_it(store: Store, people: None) -> None:
    await store.identities.create_token(TOKEN)
    assert await store.identities.stored_token("t1") == StoredToken(TOKEN, ANA, (IN_VISION,))
    assert await store.identities.stored_token("t2") is None
    with pytest.raises(NotFoundError, match="'bob'"):
        await store.identities.create_token(dataclasses.replace(TOKEN, id="t2", subject="bob"))


async def test_tokens_are_listed_and_revoked_once(store: Store, people: None) -> None:
    other = dataclasses.replace(TOKEN, id="t2", subject="ci", project=None, role=None, created_at=8.0, expires_at=None)
    for row in (TOKEN, other):
        await store.identities.create_token(row)
    assert await store.identities.tokens() == [other, TOKEN] and await store.identities.tokens("ana") == [TOKEN]
    for now in (20.0, 30.0):
        assert (await store.identities.revoke_token("t1", now)).revoked_at == 20.0
    with pytest.raises(NotFoundError, match="regroup token list"):
        await store.identities.revoke_token("t3", 20.0)


async def test_the_last_use_of_a_token_never_moves_back(store: Store, people: None) -> None:
    await store.identities.create_token(TOKEN)
    for time_s in (50.0, 40.0, 60.0, 55.0):
        await store.identities.record_uses({"t1": time_s, "gone": time_s})
    assert (await store.identities.token("t1")).used_at == 60.0


async def test_a_deleted_identity_leaves_no_memberships_and_no_tokens(store: Store, people: None) -> None:
    await store.identities.create_token(TOKEN)
    await store.identities.delete_identity("ana")
    assert await store.identities.tokens() == [] and await store.identities.members("vision") == []
    assert await store.identities.identities() == [CI]
    with pytest.raises(NotFoundError):
        await store.identities.delete_identity("ana")
