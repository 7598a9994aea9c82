"""Requests about hooks and their deliveries."""

import time
from collections.abc import Mapping, Sequence

import httpx2

from regroup.api.client.connection.requests import (
    Listing,
    Operation,
    Page,
    Request,
    Sleep,
    no_content,
    send,
    to_model,
    url_path,
)
from regroup.api.schemas.hooks import Delivery, DeliveryPage, Hook, HookList, IssuedHook

_POLL_S = 0.25


def hooks(project: str) -> Request[list[Hook]]:
    """List the hooks of a project."""
    return Request("GET", _path(project), lambda response: to_model(HookList)(response).hooks)


def hook(project: str, hook_id: str) -> Request[Hook]:
    """Get a hook."""
    return Request("GET", _path(project, hook_id), to_model(Hook))


def create_hook(
    project: str,
    name: str,
    kind: str,
    url: str | None,
    recipients: Sequence[str],
    events: Sequence[str] | None,
    labels: Mapping[str, str],
    secret: str | None = None,
    is_enabled: bool = True,
) -> Request[IssuedHook]:
    """Create a hook."""
    body = {"name": name, "kind": kind, "url": url, "recipients": list(recipients), "labels": dict(labels)}
    body |= {"secret": secret, "is_enabled": is_enabled}
    given = {} if events is None else {"events": list(events)}
    return Request("POST", _path(project), to_model(IssuedHook), body={**body, **given})


def change_hook(
    project: str,
    hook_id: str,
    name: str | None,
    url: str | None,
    recipients: Sequence[str] | None,
    events: Sequence[str] | None,
    labels: Mapping[str, str] | None,
    is_enabled: bool | None,
) -> Request[Hook]:
    """Change a hook."""
    body = {
        "name": name,
        "url": url,
        "recipients": None if recipients is None else list(recipients),
        "events": None if events is None else list(events),
        "labels": None if labels is None else dict(labels),
        "is_enabled": is_enabled,
    }
    return Request("PATCH", _path(project, hook_id), to_model(Hook), body=body)


def delete_hook(project: str, hook_id: str) -> Request[None]:
    """Delete a hook."""
    return Request("DELETE", _path(project, hook_id), no_content)


def rotate_hook(project: str, hook_id: str, secret: str | None = None) -> Request[IssuedHook]:
    """Replace the secret of a hook."""
    body = None if secret is None else {"secret": secret}
    return Request("POST", _path(project, hook_id, "rotate"), to_model(IssuedHook), body=body)


def test_hook(project: str, hook_id: str) -> Request[Delivery]:
    """Deliver a test."""
    return Request("POST", _path(project, hook_id, "test"), to_model(Delivery))


def deliveries(project: str, hook_id: str, state: str | None) -> Listing[Delivery]:
    """List the deliveries of a hook, newest first."""

    def parse(response: httpx2.Response) -> Page[Delivery]:
        found = to_model(DeliveryPage)(response)
        return Page(found.deliveries, found.next_page_token or None)

    def request_page(token: str) -> Request[Page[Delivery]]:
        params = {"state": state, "page_token": token or None}
        return Request("GET", _path(project, hook_id, "deliveries"), parse, params=params)

    return Listing(request_page, "")


def delivery(project: str, hook_id: str, delivery_id: int) -> Request[Delivery]:
    """Get a delivery."""
    return Request("GET", _path(project, hook_id, "deliveries", delivery_id), to_model(Delivery))


def redeliver(project: str, hook_id: str, delivery_id: int) -> Request[Delivery]:
    """Deliver a message again."""
    return Request("POST", _path(project, hook_id, "deliveries", delivery_id, "redeliver"), to_model(Delivery))


def wait_for_delivery(project: str, hook_id: str, delivery_id: int, timeout_s: float) -> Operation[Delivery]:
    """Wait until a delivery was attempted, or for `timeout_s`; return it."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = yield from send(delivery(project, hook_id, delivery_id))
        is_attempted = found.duration_s is not None or found.finished_at is not None
        if is_attempted or time.monotonic() >= deadline_s:
            return found
        yield Sleep(_POLL_S)


def _path(project: str, *parts: object) -> str:
    return url_path("projects", project, "hooks", *parts)
