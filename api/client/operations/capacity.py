"""Requests about the queue and forecasts of it."""

from collections.abc import Mapping
from typing import Any

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.schemas.capacity.queue import Queue
from regroup.api.schemas.capacity.size_starts import SizeStart, SizeStarts
from regroup.api.schemas.capacity.what_if import WhatIf


def queue(project: str | None, offset: int, limit: int) -> Request[Queue]:
    """Get the queue."""
    params = {"offset": offset, "limit": limit, **({} if project is None else {"project": project})}
    return Request("GET", url_path("queue"), to_model(Queue), params=params)


def what_if(scenario: Mapping[str, Any]) -> Request[WhatIf]:
    """Simulate the queue with a change."""
    return Request("POST", url_path("what-if"), to_model(WhatIf), body=dict(scenario), is_conditional=False)


def job_starts(job: str, project: str) -> Request[list[SizeStart]]:
    """Predict the starts of a queued job by size."""
    to_starts = to_model(SizeStarts)
    path = url_path("jobs", job, "starts")
    return Request("GET", path, lambda response: to_starts(response).starts, params={"project": project})
