"""The steps that all commands that change something share: call the server, wait, print."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from regroup.api.cli.common.dry_run import is_dry_run
from regroup.api.cli.common.interrupt import stating
from regroup.api.cli.common.output import print_json

if TYPE_CHECKING:
    from regroup.api.client.client import Client

T = TypeVar("T")


def run_action(
    server: str | None,
    call: "Callable[[Client], T]",
    describe: Callable[[T], str],
    *,
    as_json: bool,
    wait: "Callable[[Client, T], T] | None" = None,
    describe_interrupt: Callable[[T], str] | None = None,
) -> T:
    """Call the server, wait for the outcome if `wait` is given, print the result, and return it.

    Args:
        server: URL of the server; None for the server of this machine.
        call: Sends the request.
        describe: Returns the text for people.
        as_json: Print the result as JSON instead.
        wait: Waits for the outcome and returns it. The client then outlasts a restart of the server.
        describe_interrupt: Returns the text after Ctrl-C during the wait: the job that continues, and how to end it.
    """
    from regroup.api.cli.common.connection import connect

    if wait is not None and is_dry_run():
        raise typer.BadParameter("--wait: a dry run changes nothing that the command could wait for")
    with connect(server, patient=wait is not None) as client:
        result = call(client)
        if wait is not None:
            with stating("interrupted" if describe_interrupt is None else describe_interrupt(result)):
                result = wait(client, result)
    if as_json:
        print_json(result)
    else:
        print(describe(result))
    return result
