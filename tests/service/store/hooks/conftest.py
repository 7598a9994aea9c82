"""Fixtures: hooks of a project."""

from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.hooks import HookKind
from regroup.service.store.hooks.rows import HookRow
from regroup.service.store.store import Store


def hook_row(hook_id: str = "hook_1", **fields: Any) -> HookRow:
    usual: dict[str, Any] = {
        "project": "default", "name": "ci", "kind": HookKind.CLOUDEVENTS, "url": "https://example.com/in?token=t",
        "recipients": (), "events": ("state",), "labels": {}, "is_enabled": True, "secret": "whsec_c2VjcmV0",
        "created_at": 1.0, "created_by": "ana",
    }  # fmt: skip
    return HookRow(hook_id, **{**usual, **fields})


@pytest.fixture
def make_hook() -> Callable[..., HookRow]:
    return hook_row


@pytest.fixture
def hook(store: Store) -> Callable[..., Any]:
    """Create a hook."""

    async def create(hook_id: str = "hook_1", **fields: Any) -> HookRow:
        row = hook_row(hook_id, **fields)
        await store.hooks.create(row)
        return row

    return create


@pytest.fixture
def waiting(store: Store) -> Callable[..., Any]:
    """Return the deliveries of a hook, the oldest first."""

    async def read(hook_id: str = "hook_1", project: str = "default") -> Any:
        return (await store.hooks.deliveries.page(project, hook_id, None, None, 1000))[::-1]

    return read
