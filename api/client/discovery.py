"""Finding the server, and what following needs of it."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regroup.api.client.client import Client
from regroup.api.live.follow import Feed
from regroup.service.domain.errors import UnavailableError

_PATIENCE_S = 3.0
"""For one question: whoever typed it is waiting."""
_FOLLOW_PATIENCE_S = 120.0
"""A server may restart while somebody watches; the job goes on meanwhile."""


def address(server: str | None) -> str | None:
    """URL of the server to talk to: as given, else as written by the server of this machine; None if there is none."""
    if server:
        return server
    try:
        return str(json.loads((_state_dir() / "server.json").read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None


def connect(server: str | None, *, patient: bool = False) -> Client:
    """A client of the server to talk to; a `patient` one outlasts a restart of the server.

    Raises:
        UnavailableError: none was named and none was started here.
    """
    url = address(server)
    if url is None:
        raise UnavailableError(
            f"no server: none was started with {_state_dir()} as its state directory; "
            "start one with `regroup serve`, or name one with --server or REGROUP_SERVER"
        )
    return Client(url, patience_s=_FOLLOW_PATIENCE_S if patient else _PATIENCE_S)


def _state_dir() -> Path:
    return Path(os.environ.get("REGROUP_STATE_DIR") or "~/.regroup").expanduser()


class _ClientFeed:
    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self._job_id = job_id

    def job(self) -> Mapping[str, Any]:
        return self._client.get(self._job_id).model_dump(mode="json")

    def events(self) -> Iterator[Mapping[str, Any]]:
        return (event.model_dump(mode="json") for event in self._client.events(self._job_id, follow=True))

    def steps(self) -> Iterator[Mapping[str, Any]]:
        return (step.model_dump(mode="json") for step in self._client.steps(self._job_id, follow=True))


def feed(client: Client, job_id: str) -> Feed:
    """What following a job needs, read through `client`."""
    return _ClientFeed(client, job_id)
