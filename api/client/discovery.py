"""Discovery of the server, and a feed of a job's events for live views."""

from collections.abc import Iterator, Mapping
from typing import Any

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.connection.access_token import server_record, state_dir
from regroup.api.client.connection.address import server_url
from regroup.api.client.connection.contact import Contact
from regroup.api.client.connection.profiles import current_profile, load_profiles
from regroup.api.live.follow import Feed
from regroup.api.live.output import OutputSource
from regroup.service.domain.errors import UnavailableError
from regroup.service.local.processes import find_process

_PATIENCE_S = 3.0
"""Retry time of a single request, short because a user waits for the answer."""
_FOLLOW_PATIENCE_S = 120.0
"""Retry time while a client follows a job: the server may restart, and the job continues without it."""


def address(server: str | None) -> str | None:
    """Return the given URL, else that of the current profile, else that of this machine's server, else None."""
    if server:
        return server_url(server)
    if (profile := current_profile()) is not None:
        return profile.server
    record = server_record(state_dir())
    return None if record is None or "url" not in record else str(record["url"])


def connect(
    server: str | None, *, token: str | None = None, patient: bool = False, contact: Contact | None = None
) -> Client:
    """Return a client of the server. A `patient` client retries long enough to outlast a restart of the server.

    Args:
        server: URL of the server; None for that of the current profile, else for the server of this machine.
        token: Token of the server; None to find it (`access_token.find_token`).
        patient: The caller follows a job.
        contact: Learns when the server does not answer.

    Raises:
        UnavailableError: no server was given, and none was started on this machine.
    """
    url = require_address(server)
    patience_s = _FOLLOW_PATIENCE_S if patient else _PATIENCE_S
    return Client(url, token=token, patience_s=patience_s, contact=contact, ca_file=_ca_file(url))


def connect_async(server: str | None, *, token: str | None = None) -> AsyncClient:
    """Return a client for asyncio of the server, as `connect` does.

    Raises:
        UnavailableError: no server was given, and none was started on this machine.
    """
    url = require_address(server)
    return AsyncClient(url, token=token, patience_s=_PATIENCE_S, ca_file=_ca_file(url))


def require_address(server: str | None) -> str:
    """Return the URL of the server as `address` does.

    Raises:
        UnavailableError: no server was given, and none was started on this machine.
    """
    url = address(server)
    if url is None:
        raise UnavailableError(
            f"no server was started with the state directory {state_dir()}: "
            "start one with `regroup serve`, set --server or REGROUP_SERVER, or sign in with `regroup login`"
        )
    return url


def _ca_file(url: str) -> str | None:
    profile = load_profiles().of_server(url)
    return None if profile is None else profile.ca_file


def describe_absence(failure: str) -> str:
    """Return what this machine knows about its server that did not respond; empty if `failure` is about another one."""
    record = server_record(state_dir()) or {}
    try:
        pid, url = int(record["pid"]), str(record["url"])
    except (ValueError, KeyError, TypeError):
        return ""
    process = find_process(pid)
    if url not in failure or (process is not None and process.started == record.get("started", process.started)):
        return ""
    return f"its process {pid} has ended: `regroup serve` starts the server again; jobs continue without it"


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

    def output(self, source: OutputSource) -> Iterator[str]:
        return self._client.logs(self._job_id, rank=source.rank, stream=source.stream, generation=None, follow=True)


def feed(client: Client, job_id: str) -> Feed:
    """Return a feed that reads the job, its events and its steps through `client`."""
    return _ClientFeed(client, job_id)
