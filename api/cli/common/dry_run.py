"""`regroup --dry-run VERB`: the server checks the request, and nothing changes."""

from typing import TYPE_CHECKING

import typer

from regroup.api.cli.common.output import print_message

if TYPE_CHECKING:
    from regroup.api.client.client import Client

VERBS = frozenset(
    {
        "submit", "cancel", "release", "resize", "suspend", "resume", "cordon", "uncordon", "drain", "undrain",
        "budget", "pin", "unpin", "projects", "identities", "members", "token", "sessions", "hooks", "apply",
        "secret",
    }
)  # fmt: skip
"""Verbs with a dry run. The others change nothing, or wait for what they started."""
_requested = {"dry run": False}


def request_dry_run(verb: str | None, value: bool) -> None:
    """Remember whether the command in progress is a dry run.

    Raises:
        typer.BadParameter: the verb has no dry run.
    """
    _requested["dry run"] = value
    if value and verb not in VERBS:
        raise typer.BadParameter(f"{verb or 'regroup'} has no dry run; verbs with one: {', '.join(sorted(VERBS))}")


def is_dry_run() -> bool:
    """Return True if the command in progress is a dry run."""
    return _requested["dry run"]


def under_conditions(client: "Client") -> "Client":
    """Return the client as the command line requires it."""
    return client.under(dry_run=True) if is_dry_run() else client


def report_dry_run() -> None:
    """Print that nothing was changed, after a dry run that succeeded."""
    if is_dry_run():
        print_message("dry run: the server accepts the request; nothing was changed")
