"""Fixtures: a keyring, and secrets of projects that it encrypts."""

from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.credentials.keyring import Key, Keyring
from regroup.service.store.secrets.rows import SecretRow, secret_owner
from regroup.service.store.store import Store

VALUE = "hunter2-4f1d09c6"


def ring(*numbers: int) -> Keyring:
    return Keyring(tuple(Key.of(bytes([number]) * 32) for number in numbers), "the key file")


@pytest.fixture
def make_ring() -> Callable[..., Keyring]:
    return ring


@pytest.fixture
def set_secret(store: Store) -> Callable[..., Any]:
    """Set a secret of a project, encrypted with a keyring."""

    async def write(
        name: str = "hf-token", value: str = VALUE, project: str = "vision", keyring: Keyring | None = None, **how: Any
    ) -> SecretRow:
        used = keyring or ring(1)
        options = {"now": 100.0, **how}
        return await store.secrets.set(
            project, name, lambda version: used.seal(value, secret_owner(project, name, version)), **options
        )

    return write
