"""Connection of a command to its server. While the server does not answer, lines on standard error state it."""

from typing import TYPE_CHECKING

import typer

from regroup.api.cli.common.dry_run import under_conditions

if TYPE_CHECKING:
    from regroup.api.client.client import Client


def connect(server: str | None, *, token: str | None = None, patient: bool = False) -> "Client":
    """Return a client of the server, as `regroup.api.client.discovery.connect`, that reports lost contact to people."""
    from regroup.api.cli.common.contact import ContactReport
    from regroup.api.client import discovery
    from regroup.service.domain.errors import SpecError

    try:
        url = discovery.address(server)
    except SpecError as error:
        raise typer.BadParameter(f"--server or REGROUP_SERVER: {error.issues[0].message} (got {server!r})") from error
    contact = None if url is None else ContactReport(url)
    return under_conditions(discovery.connect(server, token=token, patient=patient, contact=contact))
