"""Encryption with another key: all values of projects and hooks, in batches. Unreadable values stay as they are."""

from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.credentials.keyring import Keyring, KeyringError
from regroup.service.domain.hooks import HookKind
from regroup.service.operations import secrets as operations
from regroup.service.operations.secrets import Secrets
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.schema.secret_tables import secrets as secrets_table
from regroup.service.store.secrets.reencryption import PLAIN
from regroup.service.store.store import Store

ANA = Author("ana", None, "127.0.0.1")
Set = Callable[..., Any]
Ring = Callable[..., Keyring]


def use_cases(store: Store, keyring: Keyring | None) -> Secrets:
    return Secrets(store, lambda: keyring, lambda: 500.0)


async def make_hook(store: Store, hook_id: str, secret: str | None, former: str | None = None) -> HookRow:
    kind = HookKind.SLACK if secret is None else HookKind.CLOUDEVENTS
    row = HookRow(
        hook_id, "vision", "ci", kind, "https://example.com", (), ("state",), {}, True, secret, 1.0, "ana", former,
        4e9 if former else None,
    )  # fmt: skip
    await store.hooks.create(row)
    return row


async def test_a_rotation_leaves_no_value_of_the_former_key(store: Store, set_secret: Set, make_ring: Ring) -> None:
    before, both, after = make_ring(1), make_ring(2, 1), make_ring(2)
    for number in range(5):
        await set_secret(f"s{number}", f"value {number}", keyring=before)
    row = HookRow("hook_1", "vision", "", HookKind.CLOUDEVENTS, None, (), (), {}, True, None, 1.0, "ana")
    await make_hook(store, "hook_1", before.seal("whsec_new", row.owner), before.seal("whsec_old", row.owner))
    await make_hook(store, "hook_2", "whsec_plain")
    await make_hook(store, "hook_3", None)
    assert await store.secrets.reencryption.uses_of_keys() == {before.current.id: 7, PLAIN: 1}
    done = await use_cases(store, both).reencrypt(ANA)
    assert (done.key_id, done.encrypted, done.unreadable, done.is_complete) == (after.current.id, 8, 0, True)
    assert await store.secrets.reencryption.uses_of_keys() == {after.current.id: 8}
    rows = await store.secrets.secrets("vision")
    assert [after.open(row.sealed, row.owner) for row in rows] == [f"value {number}" for number in range(5)]
    assert {row.version for row in rows} == {1}, "the values are the same"
    hook = await store.hooks.hook("vision", "hook_1")
    stored = [after.open(each, hook.owner) for each in hook.secrets_at(100.0)]
    assert stored == ["whsec_new", "whsec_old"]
    assert (await use_cases(store, after).reencrypt(ANA)).encrypted == 0, "a repetition changes nothing"
    records = await store.audit.page(AuditFilter(action="secrets.reencrypt"), None, 10)
    assert [(each.object, each.after) for each in records] == [
        (after.current.id, {"table": "hooks", "values": 3}), (after.current.id, {"table": "secrets", "values": 5}),
    ]  # fmt: skip


async def test_a_value_without_its_key_stays_as_it_is(store: Store, set_secret: Set, make_ring: Ring) -> None:
    lost = await set_secret("lost", keyring=make_ring(9))
    await set_secret("kept", keyring=make_ring(1))
    done = await use_cases(store, make_ring(2, 1)).reencrypt()
    assert (done.encrypted, done.unreadable, done.is_complete) == (1, 1, True)
    assert (await store.secrets.secret("vision", "lost")).sealed == lost.sealed


async def test_each_request_is_bounded_and_the_next_one_continues(
    store: Store, set_secret: Set, make_ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BATCH_ROWS", 2)
    monkeypatch.setattr(operations, "MAX_ROWS", 4)
    for number in range(5):
        await set_secret(f"s{number}", project=f"p{number % 2}")
    await make_hook(store, "hook_1", "whsec_plain")
    secrets = use_cases(store, make_ring(2, 1))
    first = await secrets.reencrypt()
    assert (first.encrypted, first.is_complete) == (4, False)
    second = await secrets.reencrypt()
    assert (second.encrypted, second.is_complete) == (2, True)


async def test_plain_values_are_encrypted_when_the_server_gets_a_key(
    store: Store, set_secret: Set, make_ring: Ring
) -> None:
    await make_hook(store, "hook_1", "whsec_plain", "whsec_old")
    kept = await set_secret(keyring=make_ring(9))
    assert await use_cases(store, None).encrypt_plain() == 0
    assert await use_cases(store, make_ring(1)).encrypt_plain() == 2
    hook = await store.hooks.hook("vision", "hook_1")
    assert make_ring(1).open(str(hook.secret), hook.owner) == "whsec_plain"
    assert await use_cases(store, make_ring(2, 1)).encrypt_plain() == 0, "a rotation is a decision of the operator"
    assert (await store.secrets.secret("vision", "hf-token")).sealed == kept.sealed


async def test_without_a_key_nothing_is_set(store: Store) -> None:
    secrets = use_cases(store, None)
    with pytest.raises(KeyringError, match="REGROUP_SECRETS_KEY_FILE"):
        await secrets.reencrypt()
    assert await secrets.secrets("vision") == []


async def test_a_plain_text_does_not_become_the_value_of_a_secret(
    store: Store, set_secret: Set, make_ring: Ring
) -> None:
    await set_secret()
    async with store._database.write() as connection:
        await connection.execute(secrets_table.update().values(sealed="chosen by eve", key_id=""))
    done = await use_cases(store, make_ring(2, 1)).reencrypt()
    assert (done.encrypted, done.unreadable) == (0, 1)
    assert (await store.secrets.secret("vision", "hf-token")).sealed == "chosen by eve"
