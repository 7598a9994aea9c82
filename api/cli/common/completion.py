"""Shell completion of names that the server knows. It never fails, and it waits for the server at most a second."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from regroup.api.client.client import Client

T = TypeVar("T")
LIMIT_S = 1.0
"""Longest wait for the server. A person who pressed the tab key waits for it."""
_JOBS = 200


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of jobs that begin with `incomplete`, the newest first; ids if it begins as an id does."""
    project = ctx.params.get("project") or "default"

    def read(client: "Client") -> Iterator[tuple[str, str]]:
        for job in islice(client.jobs(project=project), _JOBS):
            yield job.id if incomplete.startswith("job_") else job.name, str(job.state)

    return _matching(_request(ctx, lambda client: list(read(client))), incomplete)


def complete_node(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of nodes that begin with `incomplete`."""
    found = _request(ctx, lambda client: [(node.name, node.health.status) for node in client.nodes()])
    return _matching(found, incomplete)


def complete_project(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of projects that begin with `incomplete`."""
    found = _request(ctx, lambda client: [(each.name, f"{each.running} running") for each in client.projects()])
    return _matching(found, incomplete)


def complete_state(incomplete: str) -> list[str]:
    """Return the states of jobs that begin with `incomplete`, in its case."""
    from regroup.service.domain.states import JobState

    found = [state.value for state in JobState if state.value.startswith(incomplete.upper())]
    return [name.lower() for name in found] if incomplete.islower() else found


def _request(ctx: typer.Context, read: "Callable[[Client], list[T]]") -> list[T]:
    """Return what `read` returns, or nothing if the server does not answer in time."""
    server: Any = ctx.params.get("server")
    found: list[T] = []

    def work() -> None:
        with suppress(Exception), connect(server) as client:
            found.extend(read(client))

    try:
        from regroup.api.client.discovery import connect
    except ImportError:
        return []
    reader = Thread(target=work, daemon=True)  # a daemon: the process ends although the server is silent
    reader.start()
    reader.join(LIMIT_S)
    return list(found)


def _matching(found: list[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    names = dict[str, str]()
    for name, about in found:
        if name.startswith(incomplete):
            names.setdefault(name, about)
    return list(names.items())
