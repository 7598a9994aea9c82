"""/v1/projects/{name}/hooks: notifications of a project's events, and the log of their deliveries."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import SecretStr

from regroup.api.schemas.hooks import (
    Delivery,
    DeliveryPage,
    Hook,
    HookChange,
    HookList,
    HookRotation,
    IssuedHook,
    NewHook,
)
from regroup.api.web.operation import OperationRoute, secret_response
from regroup.api.web.problems import responses, secret_request
from regroup.api.web.routes.dependencies import ForProject, TheSender, TheServices, TheTokens
from regroup.service.domain.hooks import DeliveryState
from regroup.service.operations.hooks import hooks as operations
from regroup.service.policy.access.roles import Permission
from regroup.service.policy.hooks.destinations import hide_secrets
from regroup.service.store.hooks.hook_store import hook_etag
from regroup.service.store.rows.hook_rows import DeliveryRow, HookRow

Reader = Annotated[str, Depends(ForProject(Permission.HOOKS_READ))]
Writer = Annotated[str, Depends(ForProject(Permission.HOOKS_WRITE))]
HookId = Annotated[str, Path(max_length=64, description="Id of the hook")]
DeliveryId = Annotated[int, Path(ge=1, lt=2**31, description="Id of the delivery")]
_HIDDEN = {"url", "secret", "former_secret"}
router = APIRouter(
    route_class=OperationRoute, prefix="/v1/projects/{name}/hooks", tags=["hooks"], responses=responses()
)


@router.get("")
async def list_(name: Reader, services: TheServices) -> HookList:
    """List the hooks of a project, the oldest first."""
    return HookList(hooks=[_hook(row) for row in await services.hooks.hooks(name)])


@router.post("", status_code=201, responses=responses("conflict", "body_too_large", "malformed_json"))
@secret_request
@secret_response
async def create(name: Writer, new: NewHook, services: TheServices, sender: TheSender) -> IssuedHook:
    """Create a hook. A secret that the server makes is shown only in this answer."""
    requested = operations.NewHook(
        new.name, new.kind, new.url, tuple(new.recipients), tuple(dict.fromkeys(new.events)), new.labels,
        _plain(new.secret), new.is_enabled,
    )  # fmt: skip
    return _issued(await services.hooks.create(sender, name, requested))


@router.get("/{hook}")
async def get(name: Reader, hook: HookId, services: TheServices) -> Hook:
    """Get a hook."""
    return _hook(await services.hooks.get(name, hook))


@router.patch("/{hook}", responses=responses("body_too_large", "malformed_json"))
async def change(name: Writer, hook: HookId, change: HookChange, services: TheServices, sender: TheSender) -> Hook:
    """Enable or disable a hook, or change its destination or its filter."""
    requested = operations.HookChange(
        name=change.name,
        url=change.url,
        recipients=None if change.recipients is None else tuple(change.recipients),
        events=None if change.events is None else tuple(dict.fromkeys(change.events)),
        labels=change.labels,
        is_enabled=change.is_enabled,
    )
    return _hook(await services.hooks.change(sender, name, hook, requested))


@router.delete("/{hook}", status_code=204)
async def delete(name: Writer, hook: HookId, services: TheServices, sender: TheSender) -> None:
    """Delete a hook with the log of its deliveries. Notifications that wait are not delivered."""
    await services.hooks.delete(sender, name, hook)


@router.post("/{hook}/rotate", responses=responses("conflict", "body_too_large", "malformed_json"))
@secret_request
@secret_response
async def rotate(
    name: Writer, hook: HookId, services: TheServices, sender: TheSender, rotation: HookRotation | None = None
) -> IssuedHook:
    """Replace the secret of a hook. For a day, each notification has the signatures of both."""
    secret = None if rotation is None else _plain(rotation.secret)
    return _issued(await services.hooks.rotate(sender, name, hook, secret))


@router.post("/{hook}/test", status_code=202, responses=responses("conflict"))
async def test(name: Writer, hook: HookId, services: TheServices, sender: TheSender) -> Delivery:
    """Deliver a test, whatever the filter of the hook is. Its result is in the log about a second later."""
    return _delivery(await services.hooks.test(sender, name, hook))


@router.get("/{hook}/deliveries")
async def deliveries(
    name: Reader,
    hook: HookId,
    services: TheServices,
    tokens: TheTokens,
    state: Annotated[DeliveryState | None, Query(description="Deliveries in this state")] = None,
    page_size: Annotated[int, Query(ge=1, le=500, description="Maximum number of deliveries on a page")] = 100,
    page_token: Annotated[str, Query(max_length=500, description="`next_page_token` of the previous page")] = "",
) -> DeliveryPage:
    """List the deliveries of a hook, newest first. A page token is valid only with the same filters."""
    filters = {"hook": [name, hook], "state": [repr(state)]}
    before = int(tokens.read(page_token, filters)) if page_token else None
    rows = await services.hooks.deliveries(name, hook, state, before, page_size)
    token = tokens.make(str(rows[-1].id), filters) if len(rows) == page_size else ""
    return DeliveryPage(deliveries=[_delivery(row) for row in rows], next_page_token=token)


@router.get("/{hook}/deliveries/{delivery}")
async def delivery(name: Reader, hook: HookId, delivery: DeliveryId, services: TheServices) -> Delivery:
    """Get a delivery: its state, and the result of its last attempt."""
    return _delivery(await services.hooks.delivery(name, hook, delivery))


@router.post("/{hook}/deliveries/{delivery}/redeliver", status_code=202, responses=responses("conflict"))
async def redeliver(
    name: Writer, hook: HookId, delivery: DeliveryId, services: TheServices, sender: TheSender
) -> Delivery:
    """Deliver a message again, with the same id. Its result is in the log about a second later."""
    return _delivery(await services.hooks.redeliver(sender, name, hook, delivery))


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _hook(row: HookRow) -> Hook:
    return Hook.model_validate(_shown(row))


def _issued(issued: operations.IssuedHook) -> IssuedHook:
    return IssuedHook(**_shown(issued.row), secret=issued.secret)


def _shown(row: HookRow) -> dict[str, Any]:
    """Return the fields of a hook, without its secrets."""
    shown = {name: value for name, value in vars(row).items() if name not in _HIDDEN}
    url = None if row.url is None else hide_secrets(row.kind, row.url)
    return {**shown, "url": url, "recipients": list(row.recipients), "events": list(row.events), "etag": hook_etag(row)}


def _delivery(row: DeliveryRow) -> Delivery:
    event = row.event
    return Delivery(
        id=row.id,
        hook_id=row.hook_id,
        message_id=row.message_id,
        type=event.type,
        job_id=event.job_id,
        job_name=event.job_name,
        number=event.number,
        state=row.state,
        attempts=row.attempts,
        created_at=row.created_at,
        next_attempt_at=max(row.next_attempt_at, row.created_at) if row.state is DeliveryState.PENDING else None,
        attempted_at=row.attempted_at,
        finished_at=row.finished_at,
        status_code=row.status_code,
        duration_s=row.duration_s,
        error=row.error,
        redelivery_of=row.redelivery_of,
    )
