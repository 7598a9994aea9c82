"""Requests for notices of changes."""

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.client.connection.streams import EventStream
from regroup.api.schemas.history import Notice, NoticeList


def changes(after: int | None, limit: int | None) -> Request[NoticeList]:
    """Get notices after a number."""
    return Request("GET", url_path("changes"), to_model(NoticeList), params={"after": after, "limit": limit})


def follow_changes(after: int | None) -> EventStream[Notice]:
    """Stream notices after a number."""
    last = None if after is None else str(after)
    return EventStream(url_path("changes"), Notice.model_validate_json, last_event_id=last)
