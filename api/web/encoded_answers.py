"""Answers that many requests share: each is made and encoded once, and has an entity tag.

The value behind an answer is the same object as long as nothing changes (see `SharedRead`), so its identity tells
whether the encoded answer is still the right one.
"""

import hashlib
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header
from pydantic import BaseModel
from starlette.responses import Response

IfNoneMatch = Annotated[
    str | None, Header(max_length=2000, description="`ETag` of an earlier answer: answer 304 if it is still the same")
]
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "The answer matches If-None-Match"}}
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Encoded:
    value: "weakref.ref[object]"
    """The value behind the answer. It is not kept alive: an answer to an earlier state is never used again."""
    body: bytes
    etag: str


class EncodedAnswers:
    """The encoded answers of one app, the newest of each form. The oldest are removed first."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[Hashable, _Encoded] = {}
        self._bytes = 0

    def answer(
        self, form: Hashable, value: object, make: Callable[[], BaseModel], if_none_match: str | None
    ) -> Response:
        """Return the answer, or 304 if the client has it.

        Args:
            form: everything that decides what `make` returns for a value: the route, parameters, and what is visible.
            value: object that the answer shows. It never changes.
            make: makes the answer.
            if_none_match: entity tags of the answers that the client has.
        """
        found = self._kept.get(form)
        if found is None or found.value() is not value:
            found = _encode(value, make())
            self._store(form, found)
        headers = {"ETag": found.etag}
        if if_none_match is not None and found.etag in (each.strip() for each in if_none_match.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(found.body, headers=headers, media_type="application/json")

    def _store(self, form: Hashable, answer: _Encoded) -> None:
        old = self._kept.pop(form, None)
        self._kept[form] = answer
        self._bytes += len(answer.body) - (0 if old is None else len(old.body))
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))).body)


def _encode(value: object, answer: BaseModel) -> _Encoded:
    body = answer.model_dump_json(by_alias=True).encode()
    return _Encoded(weakref.ref(value), body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
