"""Hooks: create, change, rotate and delete, with audit records that contain no secret."""

import json
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.hooks import HookKind
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.hooks.hook_store import MAX_HOOKS
from regroup.service.store.store import Store

ANA = Author("ana", "t1", "10.0.0.1")


async def test_a_hook_is_stored_read_and_deleted(store: Store, hook: Any, make_hook: Any):
    first = await hook("hook_b", created_at=1.0, labels={"team": "nlp"}, events=("state:FAILED", "held"))
    mail = await hook("hook_a", created_at=2.0, kind=HookKind.EMAIL, url=None, recipients=("a@b.c",), secret=None)
    await hook("hook_c", project="vision")
    assert await store.hooks.hooks("default") == [first, mail]
    assert await store.hooks.hook("default", "hook_a") == mail
    with pytest.raises(NotFoundError):
        await store.hooks.hook("vision", "hook_a")
    with pytest.raises(NotFoundError):
        await store.hooks.delete("vision", "hook_a", now=3.0)
    await store.hooks.delete("default", "hook_a", now=3.0)
    assert await store.hooks.hooks("default") == [first]
    assert make_hook("x").secret not in repr(make_hook("x"))


async def test_a_project_has_a_maximum_of_hooks(store: Store, hook: Any):
    for number in range(MAX_HOOKS):
        await hook(f"hook_{number}")
    with pytest.raises(ConflictError, match=f"has {MAX_HOOKS} hooks"):
        await hook("hook_more")
    await hook("of another project", project="vision")


async def test_a_rotation_keeps_the_former_secret_for_a_time(store: Store, hook: Any):
    row = await hook()
    rotated = await store.hooks.rotate("default", row.id, "whsec_bmV3", former_until=100.0, now=10.0)
    assert rotated.secrets_at(99.0) == ["whsec_bmV3", row.secret]
    assert rotated.secrets_at(100.0) == ["whsec_bmV3"]
    again = await store.hooks.rotate("default", row.id, "whsec_bmV3Mg==", former_until=200.0, now=50.0)
    assert again.secrets_at(60.0) == ["whsec_bmV3Mg==", "whsec_bmV3"]


async def test_each_change_has_a_record_without_secrets(store: Store, make_hook: Any):
    row = make_hook(kind=HookKind.SLACK, url="https://hooks.slack.com/T0/secret-path")
    await store.hooks.create(row, author=ANA)
    path = "https://hooks.slack.com/T0/other-secret"
    await store.hooks.change("default", row.id, "hooks.change", now=2.0, author=ANA, url=path)
    await store.hooks.rotate("default", row.id, "whsec_bmV3", former_until=100.0, now=3.0, author=ANA)
    await store.hooks.delete("default", row.id, now=4.0, author=ANA)
    records = await store.audit.page(AuditFilter(), None, 10)
    assert [each.action for each in records[::-1]] == ["hooks.create", "hooks.change", "hooks.rotate", "hooks.delete"]
    assert {(each.project, each.object, each.actor) for each in records} == {("default", row.id, "ana")}
    text = json.dumps([[each.before, each.after] for each in records], ensure_ascii=False)
    assert "secret-path" not in text and "other-secret" not in text and "whsec_" not in text
    assert "https://hooks.slack.com/…" in text, "the change of a hidden part has a record, too"
