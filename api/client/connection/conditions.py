"""Conditions under which requests take effect: `Client.under`. And a key for each request that may be repeated."""

import dataclasses
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regroup.api.client.connection.requests import Request

_KEY = "Idempotency-Key"
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class Conditions:
    """Conditions of a request that changes something."""

    dry_run: bool = False
    """The server checks the request and returns its result, but stores nothing."""
    if_match: str | None = None
    """`etag` of the object: the server refuses the request if the object has changed since."""
    idempotency_key: str | None = None
    """Key of each POST. Requests with the same key and body take effect once. None: the client makes one."""

    def applied_to(self, request: Request[Any]) -> Request[Any]:
        """Return the request with these conditions, if it changes an object.

        A POST gets a key, so that it takes effect once although the client sends it again when no answer arrived.
        """
        if request.method in _READING or not request.is_conditional:
            return request
        headers: Mapping[str, str] = request.headers
        if request.method == "POST" and _KEY not in headers:
            headers = {**headers, _KEY: self.idempotency_key or uuid.uuid4().hex}
        if self.if_match is not None:
            headers = {**headers, "If-Match": self.if_match}
        params = {**request.params, "dry_run": True} if self.dry_run else request.params
        return dataclasses.replace(request, headers=headers, params=params)
