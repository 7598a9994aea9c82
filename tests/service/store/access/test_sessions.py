"""Sessions of browsers, on SQLite and on a real PostgreSQL."""

import dataclasses

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.identity import IdentityKind
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.rows.identity_rows import IdentityRow, SessionRow, TokenRow
from regroup.service.store.store import Store

ANA = Author("ana", "ses_1", "127.0.0.1")
FIRST = SessionRow(
    "ses_1", "ana", "d" * 64, "p" * 64, "127.0.0.1", "Firefox", 10.0, 100.0, groups=frozenset({"b", "a"})
)


async def test_a_session_is_stored_used_and_removed_with_records(store: Store) -> None:
    sessions = store.identities.sessions
    await sessions.create(FIRST, most=5, author=ANA)
    assert await sessions.session("ses_1") == FIRST and await sessions.session("ses_2") is None
    await sessions.record_use("ses_1", 20.0)
    assert await sessions.sessions("ana", 50.0) == [dataclasses.replace(FIRST, used_at=20.0)]
    assert (await sessions.sessions("bob", 50.0), await sessions.sessions(None, 100.0)) == ([], [])
    assert (await sessions.count(99.0), await sessions.count(100.0)) == (1, 0)
    await sessions.remove("ses_1", now=60.0, author=ANA)
    with pytest.raises(NotFoundError, match="regroup sessions list"):
        await sessions.remove("ses_1", now=61.0, author=ANA)
    ended, begun = await store.audit.page(AuditFilter(), None, 10)
    assert (begun.action, begun.before, begun.after) == ("sessions.create", None, FIRST.facts)
    assert (ended.action, ended.before, ended.after) == ("sessions.revoke", FIRST.facts, None)
    assert begun.actor == "ana" and begun.token_id == "ses_1" and "d" * 64 not in str(begun)


async def test_a_new_session_ends_expired_ones_and_the_oldest_of_its_subject(store: Store) -> None:
    sessions = store.identities.sessions
    for number in range(4):
        at = 10.0 + number
        await sessions.create(dataclasses.replace(FIRST, id=f"ses_{number}", created_at=at), most=3)
    other = dataclasses.replace(FIRST, id="ses_other", subject="bob", created_at=11.0)
    await sessions.create(other, most=3)
    assert {row.id for row in await sessions.sessions(None, 20.0)} == {"ses_1", "ses_2", "ses_3", "ses_other"}
    late = dataclasses.replace(FIRST, id="ses_late", created_at=100.0, expires_at=200.0)
    await sessions.create(late, most=3)
    assert [await sessions.session(each) for each in ("ses_3", "ses_other")] == [None, None]


@pytest.mark.parametrize("end", ["revoke", "delete"])
async def test_a_session_ends_with_the_token_and_the_identity_for_which_it_stands(store: Store, end: str) -> None:
    await store.identities.create_identity(IdentityRow("ana", IdentityKind.USER, None, False, 1.0, "test"))
    await store.identities.create_token(TokenRow("t1", "ana", "", "d" * 64, None, None, 1.0, "test"))
    row = dataclasses.replace(FIRST, groups=None, token_id="t1")
    await store.identities.sessions.create(row, most=5)
    assert await store.identities.sessions.session("ses_1") == row
    if end == "revoke":
        await store.identities.revoke_token("t1", 20.0)
    else:
        await store.identities.delete_identity("ana")
    assert await store.identities.sessions.session("ses_1") is None
