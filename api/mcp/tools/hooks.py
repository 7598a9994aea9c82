"""Tools for hooks and their deliveries."""

from typing import Annotated, Literal

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Count, Cursor, HookId, OneProject
from regroup.api.mcp.calls.tool import changes, reads
from regroup.api.schemas.hooks import Delivery, Events, Hook, HookName, Recipients, Url
from regroup.api.schemas.wire import Wire

DeliveryId = Annotated[int, Field(ge=1, lt=2**53, description="Id of a delivery")]


class Hooks(Wire):
    """Hooks of a project, the oldest first."""

    hooks: list[Hook]
    total: int


class Deliveries(Wire):
    """Deliveries of a hook, newest first."""

    deliveries: list[Delivery]
    next_cursor: str | None


class NewSecret(Hook):
    """A hook with its new secret."""

    secret: str | None
    """Key of the signatures, which is shown once; null in a preview, and for a kind that is not signed."""


class Deleted(Wire):
    """An object that was deleted."""

    deleted: str


async def hook_state(caller: Caller, project: str, hook: str) -> str:
    """Return the entity tag of a hook."""
    return (await caller.client.hook(project, hook)).etag


@reads("List hooks")
async def list_hooks(caller: Caller, project: OneProject, limit: Count = 50) -> Hooks:
    """List the hooks of a project: receivers of notifications, without their secrets."""
    found = await caller.client.hooks(project)
    return Hooks(hooks=found[:limit], total=len(found))


@reads("List deliveries of a hook")
async def list_deliveries(
    caller: Caller,
    project: OneProject,
    hook: HookId,
    state: Annotated[
        Literal["pending", "delivered", "failed"] | None, Field(description="Only deliveries in this state")
    ] = None,
    limit: Count = 20,
    cursor: Cursor = None,
) -> Deliveries:
    """List the deliveries of a hook, newest first: state, attempts, HTTP status and problem."""
    page = await caller.client.delivery_page(project, hook, state=state, cursor=cursor, size=limit)
    return Deliveries(deliveries=list(page.items), next_cursor=page.next_cursor)


@changes("Create a hook", state=None)
async def create_hook(
    caller: Caller,
    project: OneProject,
    name: Annotated[HookName, Field(description="Description, for people")],
    kind: Annotated[
        Literal["cloudevents", "slack", "teams", "email"], Field(description="Kind of receiver")
    ] = "cloudevents",
    url: Annotated[Url | None, Field(description="URL of the receiver; none for email")] = None,
    recipients: Annotated[Recipients | None, Field(description="Addresses, for email")] = None,
    events: Annotated[
        Events | None, Field(description="Types of events or `state:STATE`; null for the ends of jobs")
    ] = None,
) -> NewSecret:
    """Create a hook, which sends events of a project to a receiver. The answer has its secret, once."""
    made = await caller.client.create_hook(
        project, name, kind=kind, url=url, recipients=recipients or (), events=events
    )
    return NewSecret(**made.model_dump(exclude={"secret"}), secret=None if caller.is_dry_run else made.secret)


@changes("Enable or disable a hook", state=hook_state, is_idempotent=True)
async def enable_hook(
    caller: Caller,
    project: OneProject,
    hook: HookId,
    is_enabled: Annotated[bool, Field(description="False ends notifications")] = True,
) -> Hook:
    """Enable or disable the notifications of a hook. Those that wait are kept for five days."""
    return await caller.client.change_hook(project, hook, is_enabled=is_enabled)


@changes("Rotate the secret of a hook", state=hook_state, is_destructive=True)
async def rotate_hook_secret(caller: Caller, project: OneProject, hook: HookId) -> NewSecret:
    """Replace the secret of a hook; the answer has the new one. For a day, notifications have both signatures."""
    made = await caller.client.rotate_hook(project, hook)
    return NewSecret(**made.model_dump(exclude={"secret"}), secret=None if caller.is_dry_run else made.secret)


@changes("Deliver a message again", state=None)
async def redeliver(caller: Caller, project: OneProject, hook: HookId, delivery: DeliveryId) -> Delivery:
    """Deliver a message of the log again, with the same id. `list_deliveries` shows the result."""
    return await caller.client.redeliver(project, hook, delivery)


@changes("Delete a hook", state=hook_state, is_destructive=True, is_idempotent=True)
async def delete_hook(caller: Caller, project: OneProject, hook: HookId) -> Deleted:
    """Delete a hook with the log of its deliveries."""
    await caller.client.delete_hook(project, hook)
    return Deleted(deleted=hook)
