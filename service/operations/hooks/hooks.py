"""Use cases of hooks: create, change, test and delete them, and the log of their deliveries."""

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import cast

from regroup.service.domain.credentials.keyring import KeyringError, Keys, no_keys, read_stored, stored_form
from regroup.service.domain.credentials.random_secrets import generate_id
from regroup.service.domain.credentials.webhook_signature import generate_secret
from regroup.service.domain.errors import ConflictError, FieldIssue, SpecError
from regroup.service.domain.hooks import EVENT_TYPES, TEST_EVENT, DeliveryState, HookEvent, HookKind, is_event_filter
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.hooks.destinations import DestinationRules, find_issue
from regroup.service.settings import Settings
from regroup.service.store.rows.hook_rows import DeliveryRow, HookRow
from regroup.service.store.store import Store

ROTATION_S = 86_400.0
"""Time after a rotation in which notifications are also signed with the former key."""


@dataclass(frozen=True)
class NewHook:
    """A hook to create."""

    name: str
    kind: HookKind
    url: str | None
    recipients: tuple[str, ...]
    events: tuple[str, ...]
    labels: Mapping[str, str]
    secret: str | None = field(default=None, repr=False)
    """Key of the signatures; None for a new one."""
    is_enabled: bool = True


@dataclass(frozen=True)
class HookChange:
    """Changes of a hook. Fields that are None stay as they are."""

    name: str | None = None
    url: str | None = None
    recipients: tuple[str, ...] | None = None
    events: tuple[str, ...] | None = None
    labels: Mapping[str, str] | None = None
    is_enabled: bool | None = None


@dataclass(frozen=True)
class IssuedHook:
    """A hook after its creation or a rotation."""

    row: HookRow
    secret: str | None = field(repr=False)
    """Key of the signatures, which is shown once; None if the sender gave it, and for a kind that is not signed."""


class Hooks:
    """Use cases of hooks. The routes check the permissions in the project.

    Args:
        rules: destinations that the operator allows.
        clock: Unix seconds.
        keys: returns the keys that encrypt the secrets of hooks.
    """

    def __init__(self, store: Store, rules: DestinationRules, clock: Callable[[], float], keys: Keys = no_keys) -> None:
        self._store, self._rules, self._clock, self._keys = store.hooks, rules, clock, keys

    async def hooks(self, project: str) -> list[HookRow]:
        """Return the hooks of a project, the oldest first."""
        return await self._store.hooks(project)

    async def get(self, project: str, hook_id: str) -> HookRow:
        """Return a hook; raises NotFoundError."""
        return await self._store.hook(project, hook_id)

    async def create(self, sender: Sender, project: str, new: NewHook) -> IssuedHook:
        """Create a hook.

        Raises:
            SpecError: the destination is not allowed, or an event does not exist.
            ConflictError: the project has the maximum number of hooks.
            KeyringError: the key that encrypts the secret cannot be read.
        """
        self._check(new.kind, new.url, new.recipients, new.events)
        if new.secret is not None and new.kind is not HookKind.CLOUDEVENTS:
            raise SpecError([FieldIssue("secret", f"a hook of kind {new.kind} is not signed; leave the secret out")])
        made = generate_secret() if new.kind is HookKind.CLOUDEVENTS and new.secret is None else None
        row = HookRow(
            _new_id("hook"), project, new.name, new.kind, new.url, new.recipients, new.events, new.labels,
            new.is_enabled, None, self._clock(), sender.name,
        )  # fmt: skip
        if secret := made or new.secret:
            row = replace(row, secret=stored_form(self._keys, secret, row.owner))
        await self._store.create(row, author=sender.author)
        return IssuedHook(row, made)

    async def change(self, sender: Sender, project: str, hook_id: str, change: HookChange) -> HookRow:
        """Change a hook. Notifications that wait go to the new destination.

        Raises:
            NotFoundError: the project does not have the hook.
            SpecError: the destination is not allowed, or an event does not exist.
        """
        given = {name: value for name, value in vars(change).items() if value is not None}
        row = await self._store.hook(project, hook_id)
        if not given:
            return row
        after = replace(row, **given)
        if given.keys() & {"url", "recipients", "events"}:
            self._check(after.kind, after.url, after.recipients, after.events)
        columns = {name: _plain(value) for name, value in given.items()}
        return await self._store.change(
            project, hook_id, "hooks.change", now=self._clock(), author=sender.author, **columns
        )

    async def rotate(self, sender: Sender, project: str, hook_id: str, secret: str | None = None) -> IssuedHook:
        """Replace the secret of a hook. For a day, notifications have the signatures of both.

        Args:
            sender: who rotates it.
            project: its project.
            hook_id: its id.
            secret: the next secret; None for a new one. If the hook has it already, nothing changes.

        Raises:
            NotFoundError: the project does not have the hook.
            ConflictError: a hook of this kind has no secret.
            KeyringError: the key that encrypts the secret cannot be read.
        """
        row = await self._store.hook(project, hook_id)
        if row.secret is None:
            raise ConflictError(
                f"hook {hook_id!r} is of kind {row.kind}, which has no secret; only cloudevents has one"
            )
        if secret is not None and self._has_secret(row, row.secret, secret):
            return IssuedHook(row, None)
        made = generate_secret() if secret is None else None
        now = self._clock()
        rotated = await self._store.rotate(
            project,
            hook_id,
            stored_form(self._keys, made or secret or "", row.owner),
            former_until=now + ROTATION_S,
            now=now,
            author=sender.author,
        )
        return IssuedHook(rotated, made)

    async def delete(self, sender: Sender, project: str, hook_id: str) -> None:
        """Delete a hook with the log of its deliveries; raises NotFoundError."""
        await self._store.delete(project, hook_id, now=self._clock(), author=sender.author)

    # ------------------------------------------------------------ deliveries

    async def test(self, sender: Sender, project: str, hook_id: str) -> DeliveryRow:
        """Deliver a test, whatever the filter of the hook is. The result is in the log about a second later.

        Raises:
            NotFoundError: the project does not have the hook.
            ConflictError: the hook is disabled, or too many of its deliveries wait.
        """
        now = self._clock()
        data = {"message": f"{sender.name} tests the hook {hook_id}"}
        event = HookEvent(_new_id("test"), TEST_EVENT, project, now, sender.name, data)
        return await self._store.deliveries.request(project, hook_id, event, now=now, author=sender.author)

    async def deliveries(
        self, project: str, hook_id: str, state: DeliveryState | None, before_id: int | None, limit: int
    ) -> list[DeliveryRow]:
        """Return up to `limit` deliveries of a hook, the newest first; raises NotFoundError."""
        return await self._store.deliveries.page(project, hook_id, state, before_id, limit)

    async def delivery(self, project: str, hook_id: str, delivery_id: int) -> DeliveryRow:
        """Return a delivery; raises NotFoundError."""
        return await self._store.deliveries.delivery(project, hook_id, delivery_id)

    async def redeliver(self, sender: Sender, project: str, hook_id: str, delivery_id: int) -> DeliveryRow:
        """Deliver a message again, with the same id. Raises the errors of `test`."""
        return await self._store.deliveries.repeat(
            project, hook_id, delivery_id, now=self._clock(), author=sender.author
        )

    def _has_secret(self, row: HookRow, stored: str, secret: str) -> bool:
        """Return True if this is the present secret; False also if the server cannot read that one."""
        try:
            return hmac.compare_digest(read_stored(self._keys, stored, row.owner).encode(), secret.encode())
        except KeyringError:
            return False

    def _check(self, kind: HookKind, url: str | None, recipients: Sequence[str], events: Sequence[str]) -> None:
        if issue := find_issue(kind, url, recipients, self._rules):
            raise SpecError([issue])
        for index, each in enumerate(events):
            if not is_event_filter(each):
                message = (
                    f"is not an event; use state:FAILED or another state, or one of {', '.join(sorted(EVENT_TYPES))}"
                )
                raise SpecError([FieldIssue.at(("events", index), message, each)])


def rules_of(settings: Settings) -> DestinationRules:
    """Return the destinations that the settings allow."""
    return DestinationRules(
        tuple(ip_network(each) for each in settings.hook_private_networks),
        has_mail=bool(settings.smtp_host),
        recipient_domains=tuple(each.lower() for each in settings.smtp_recipient_domains),
    )


def _new_id(prefix: str) -> str:
    return f"{prefix}_{generate_id()}"


def _plain(value: object) -> object:
    """Return a value as its column stores it."""
    if isinstance(value, tuple):
        return list(cast(tuple[str, ...], value))
    return dict(cast(Mapping[str, str], value)) if isinstance(value, Mapping) else value
