"""The bodies of notifications over HTTP: CloudEvents 1.0, Slack and Microsoft Teams. Pure.

Sources: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md,
https://docs.slack.dev/messaging/formatting-message-text (escapes) and https://adaptivecards.io/explorer (TextRun shows
its text without Markdown).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.hooks import HookEvent, HookKind
from regroup.service.policy.hooks.summary import format_time, summarize

TYPE_PREFIX = "regroup.job."
"""Begin of the CloudEvents types: `regroup.job.state`."""


@dataclass(frozen=True)
class Body:
    """The content of a request."""

    content_type: str
    content: bytes


def render_body(kind: HookKind, event: HookEvent) -> Body:
    """Return the body of a notification. It is the same in all attempts.

    Raises:
        KeyError: a hook of this kind does not use HTTP.
    """
    content_type, render = _RENDERERS[kind]
    return Body(content_type, json.dumps(render(event), separators=(",", ":")).encode())


def _cloud_event(event: HookEvent) -> dict[str, Any]:
    data: dict[str, Any] = {"project": event.project, "type": event.type, "actor": event.actor, "event": event.data}
    if event.job_id is not None:
        job = {"id": event.job_id, "name": event.job_name, "labels": event.labels}
        data |= {"job": job, "number": event.number, "generation": event.generation}
    return {
        "specversion": "1.0",
        "id": event.message_id,
        "source": f"/v1/projects/{event.project}",
        "type": f"{TYPE_PREFIX}{event.type}",
        "subject": event.job_id or "test",
        "time": format_time(event.time_s),
        "datacontenttype": "application/json",
        "data": data,
    }


def _slack(event: HookEvent) -> dict[str, Any]:
    summary = summarize(event)
    lines = [summary.title, *(f"{name}: {value}" for name, value in summary.facts)]
    return {"text": _escape("\n".join(lines)), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def _escape(text: str) -> str:
    """Return a text without the characters by which Slack recognizes mentions and links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(event: HookEvent) -> dict[str, Any]:
    summary = summarize(event)
    title = {"type": "TextRun", "text": summary.title, "weight": "bolder", "size": "medium"}
    rows = [{"type": "RichTextBlock", "inlines": [title]}]
    for name, value in summary.facts:
        inlines = [{"type": "TextRun", "text": f"{name}: ", "weight": "bolder"}, {"type": "TextRun", "text": value}]
        rows.append({"type": "RichTextBlock", "inlines": inlines})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": rows,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


_RENDERERS: Mapping[HookKind, tuple[str, Callable[[HookEvent], dict[str, Any]]]] = {
    HookKind.CLOUDEVENTS: ("application/cloudevents+json; charset=utf-8", _cloud_event),
    HookKind.SLACK: ("application/json; charset=utf-8", _slack),
    HookKind.TEAMS: ("application/json; charset=utf-8", _teams),
}
