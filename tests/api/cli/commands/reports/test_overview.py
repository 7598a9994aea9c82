"""`regroup overview`."""

from collections.abc import Callable
from typing import Any

from tests.support.inputs.held_devices import submit
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]


def test_the_overview_is_printed_for_people_and_programs(cli: Cli, server: AppServer) -> None:
    server.do(submit(server.store, "job_one", project="vision"))
    first, *others = cli("overview").out.splitlines()
    assert "1 job waits" in first
    assert "waiting, submitted: 1, for example job-one" in others
    assert cli("overview", "--json").json["jobs"] == {"QUEUED": 1}
