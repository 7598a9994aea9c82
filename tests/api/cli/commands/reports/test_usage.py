"""The page about usage, typed against a server, and the output of the command."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.support.inputs.held_devices import allocate, end, reservation, submit
from tests.support.jobs.shell_commands import blocks
from tests.support.servers.app_server import AppServer

PAGE = "docs/operations/usage.md"
Cli = Callable[..., Any]
START_S = datetime.fromisoformat("2026-11-02T12:00").timestamp()


@pytest.fixture(scope="module", autouse=True)
def used(server: AppServer) -> None:
    async def run() -> None:
        for job_id, user, accelerator in (("j_one", "ana", "H100"), ("j_two", "bob", "A100")):
            await submit(server.store, job_id, user, project="vision")
            await allocate(server.store, server.lease, job_id, reservation(job_id, "a", 2, accelerator), now=START_S)
            await end(server.store, server.lease, job_id, now=START_S + 3600.0)

    server.do(run())


def test_the_commands_of_the_page_work(cli: Cli) -> None:
    (block,) = blocks(PAGE, "console")
    for line in block.commands:
        command, *arguments = line.split()
        assert command == "regroup"
        done = cli(*arguments)
        assert done.code == 0 and done.out, done.err


def test_use_is_shown_as_a_table(cli: Cli, server: AppServer) -> None:
    lines = cli("usage", "--by", "user,class", "--from", "2026-11-02", "--to", "2026-11-02T12:30").out.splitlines()
    assert [line.split() for line in lines] == [
        ["USER", "ACCELERATOR", "DEVICE-HOURS", "COST"],
        ["ana", "H100", "1.00", "-"],
        ["bob", "A100", "1.00", "-"],
    ]
    object.__setattr__(server._settings, "prices", "{currency: EUR, device_hour: {H100: 1500}}")
    try:
        priced = cli("usage", "--project", "vision", "--to", "2026-12-01")
        assert priced.out.splitlines()[1].split() == ["vision", "4.00", "3,000.00", "EUR", "+", "2.00", "h"]
        assert priced.err == "without price, and in no cost: A100\n"
    finally:
        object.__setattr__(server._settings, "prices", "")


def test_use_is_printed_as_csv_and_json(cli: Cli) -> None:
    assert cli("usage", "--by", "job", "--csv").out.splitlines()[1].startswith("j_one,j-one,2.000000,,")
    (row,) = cli("usage", "--project", "vision", "--json").json
    assert (row["project"], row["device_hours"]) == ("vision", 4.0)
    assert cli("usage", "--project", "speech").out.splitlines()[1:] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("--by", "team"), "'team' is not a group"), (("--from", "soon"), "--from: must be a time such as")],
)
def test_a_mistake_is_named(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    refused = cli("usage", *arguments)
    assert refused.code != 0 and text in refused.err, refused.err
