"""Methods of the asynchronous client for hooks."""

from collections.abc import AsyncIterator, Mapping, Sequence

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import hooks
from regroup.api.schemas.hooks import Delivery, Hook, IssuedHook


class AsyncHookMethods:
    """The part of the client for hooks."""

    _transport: AsyncTransport

    async def hooks(self, project: str) -> list[Hook]:
        """List the hooks of a project, the oldest first."""
        return await self._transport.run(hooks.hooks(project))

    async def hook(self, project: str, hook_id: str) -> Hook:
        """Return a hook."""
        return await self._transport.run(hooks.hook(project, hook_id))

    async def create_hook(
        self,
        project: str,
        name: str,
        *,
        kind: str = "cloudevents",
        url: str | None = None,
        recipients: Sequence[str] = (),
        events: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        secret: str | None = None,
        is_enabled: bool = True,
    ) -> IssuedHook:
        """Create a hook. A secret that the server makes is in this answer only.

        Args:
            project: Project whose events it delivers.
            name: Description, for people.
            kind: `cloudevents`, `slack`, `teams` or `email`.
            url: URL of the receiver; none for `email`.
            recipients: Addresses, for `email`.
            events: Types of events, or `state:STATE`. Default: the ends of jobs, and jobs that are held.
            labels: Labels that a job must have. Default: all jobs of the project.
            secret: Key of the signatures: `whsec_` and 24 to 64 bytes in Base64. Default: the server makes one.
            is_enabled: False if it gets no notifications yet.
        """
        request = hooks.create_hook(project, name, kind, url, recipients, events, labels or {}, secret, is_enabled)
        return await self._transport.run(request)

    async def change_hook(
        self,
        project: str,
        hook_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        recipients: Sequence[str] | None = None,
        events: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        is_enabled: bool | None = None,
    ) -> Hook:
        """Change a hook. Values that are None stay as they are. Notifications that wait go to the new destination."""
        request = hooks.change_hook(project, hook_id, name, url, recipients, events, labels, is_enabled)
        return await self._transport.run(request)

    async def delete_hook(self, project: str, hook_id: str) -> None:
        """Delete a hook with the log of its deliveries."""
        return await self._transport.run(hooks.delete_hook(project, hook_id))

    async def rotate_hook(self, project: str, hook_id: str, *, secret: str | None = None) -> IssuedHook:
        """Replace the secret of a hook. For a day, each notification has the signatures of both.

        Args:
            project: Project of the hook.
            hook_id: Id of the hook.
            secret: Its next secret: `whsec_` and 24 to 64 bytes in Base64. Default: the server makes one.
        """
        return await self._transport.run(hooks.rotate_hook(project, hook_id, secret))

    async def test_hook(self, project: str, hook_id: str) -> Delivery:
        """Deliver a test. `wait_for_delivery` returns its result."""
        return await self._transport.run(hooks.test_hook(project, hook_id))

    def deliveries(self, project: str, hook_id: str, *, state: str | None = None) -> AsyncIterator[Delivery]:
        """List the deliveries of a hook, newest first.

        Args:
            project: Project of the hook.
            hook_id: Id of the hook.
            state: `pending`, `delivered` or `failed`. Default: all.
        """
        return self._transport.pages(hooks.deliveries(project, hook_id, state))

    async def delivery(self, project: str, hook_id: str, delivery_id: int) -> Delivery:
        """Return a delivery."""
        return await self._transport.run(hooks.delivery(project, hook_id, delivery_id))

    async def redeliver(self, project: str, hook_id: str, delivery_id: int) -> Delivery:
        """Deliver a message again, with the same id. `wait_for_delivery` returns its result."""
        return await self._transport.run(hooks.redeliver(project, hook_id, delivery_id))

    async def wait_for_delivery(
        self, project: str, hook_id: str, delivery_id: int, *, timeout_s: float = 60.0
    ) -> Delivery:
        """Wait until a delivery was attempted, at most `timeout_s`; return it."""
        return await self._transport.run(hooks.wait_for_delivery(project, hook_id, delivery_id, timeout_s))
