"""Use cases of secrets: set, list, delete, encrypt again, and the check of the secrets that a spec names.

A value is written and never returned. It leaves the server only for the agents of a job that uses it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.credentials.keyring import KeyringError, Keys, Owner, read_stored, require_keys
from regroup.service.domain.errors import FieldIssue, SpecError, UnavailableError
from regroup.service.operations.access.authorization import Sender
from regroup.service.spec.job import JobSpec
from regroup.service.store.secrets.rows import SECRET, SecretRow, secret_owner
from regroup.service.store.store import Store

BATCH_ROWS = 100
"""Number of rows that are encrypted in one transaction."""
MAX_ROWS = 5_000
"""Number of rows that one request encrypts."""
_INTERVAL_S = 60.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Reencryption:
    """The result of an encryption with the current key."""

    key_id: str
    """Key that encrypts."""
    encrypted: int
    """Number of values that were encrypted again."""
    unreadable: int
    """Number of values that no key of the server decrypts."""
    is_complete: bool
    """False if more values follow."""


class Secrets:
    """Use cases of secrets. The routes check the permissions.

    Args:
        keys: returns the keys of the server.
        clock: Unix seconds.
    """

    def __init__(self, store: Store, keys: Keys, clock: Callable[[], float]) -> None:
        self._store, self._keys, self._clock = store, keys, clock

    async def secrets(self, project: str) -> list[SecretRow]:
        """Return the secrets of a project, by name."""
        return await self._store.secrets.secrets(project)

    async def get(self, project: str, name: str) -> SecretRow:
        """Return a secret without its value; raises NotFoundError."""
        return await self._store.secrets.secret(project, name)

    async def set(self, sender: Sender, project: str, name: str, value: str) -> SecretRow:
        """Create a secret, or replace its value.

        Raises:
            KeyringError: the server has no key, or cannot read it.
            ConflictError: the project has the maximum number of secrets.
        """
        keyring = require_keys(self._keys)
        return await self._store.secrets.set(
            project,
            name,
            lambda version: keyring.seal(value, secret_owner(project, name, version)),
            now=self._clock(),
            author=sender.author,
        )

    async def delete(self, sender: Sender, project: str, name: str) -> None:
        """Delete a secret; raises NotFoundError. Ranks that run keep its value."""
        await self._store.secrets.delete(project, name, now=self._clock(), author=sender.author)

    async def reencrypt(self, author: Author = CONTROLLER) -> Reencryption:
        """Encrypt values of other keys, and those that are not encrypted, with the current key.

        Raises:
            KeyringError: the server has no key, or cannot read it.
        """
        keyring, store = require_keys(self._keys), self._store.secrets.reencryption
        key_id, now = keyring.current.id, self._clock()

        def reseal(stored: str, owner: Owner) -> str:
            # A secret is never stored in plain text: a text that a person writes there must not become its value.
            is_secret = owner.kind == SECRET
            value = keyring.open(stored, owner) if is_secret else read_stored(lambda: keyring, stored, owner)
            return keyring.seal(value, owner)

        encrypted, unreadable, batches, is_complete = 0, 0, MAX_ROWS // BATCH_ROWS, True
        for run in (store.reseal_secrets, store.reseal_hooks):
            after: tuple[str, ...] | None = ()
            while after is not None and batches > 0:
                batch = await run(key_id, reseal, after, BATCH_ROWS, now=now, author=author)
                encrypted, unreadable = encrypted + batch.encrypted, unreadable + batch.unreadable
                after, batches = batch.last, batches - bool(batch.encrypted + batch.unreadable)
            is_complete = is_complete and after is None
        return Reencryption(key_id, encrypted, unreadable, is_complete)

    async def encrypt_plain(self) -> int:
        """Encrypt values that were stored while the server had no key, and return their number. Without a key, none.

        Raises:
            KeyringError: the server cannot read its key.
        """
        keyring, store, encrypted = self._keys(), self._store.secrets.reencryption, 0
        after: tuple[str, ...] | None = () if keyring is not None else None
        while keyring is not None and after is not None:
            batch = await store.reseal_hooks(
                keyring.current.id, keyring.seal, after, BATCH_ROWS, now=self._clock(), only_plain=True
            )
            encrypted, after = encrypted + batch.encrypted, batch.last
        return encrypted


async def run_encryption(secrets: Secrets) -> None:
    """Encrypt values that were stored while the server had no key, every minute, until cancelled."""
    while True:
        try:
            if count := await secrets.encrypt_plain():
                _log.info("encrypted secrets that were stored without a key", values=count)
        except (KeyringError, UnavailableError) as error:
            _log.warning("stored secrets are not encrypted", error=str(error))
        await asyncio.sleep(_INTERVAL_S)


async def check_secrets(store: Store, spec: JobSpec) -> None:
    """Check that the project of a spec has the secrets that it names; raises SpecError."""
    named = spec.project_secrets
    if not named:
        return
    found = {row.name for row in await store.secrets.secrets(spec.project, set(named.values()))}
    issues = [
        FieldIssue.at(
            ("secrets", variable, "from_project"),
            f"project {spec.project!r} has no secret {name!r}: an admin can create it with "
            f"`regroup secret set {name} --project {spec.project}`",
        )
        for variable, name in named.items()
        if name not in found
    ]
    if issues:
        raise SpecError(issues)
