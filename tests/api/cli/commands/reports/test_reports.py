"""The commands about reliability and settings, and their page, typed against a server."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.policy.detection.node_quarantine import NodeEventKind
from tests.support.inputs.interruptions import interrupt, record_node_faults, submit_running
from tests.support.jobs.shell_commands import blocks
from tests.support.servers.app_server import AppServer

PAGE = "docs/operations/reliability.md"
Cli = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def interrupted(server: AppServer) -> None:
    async def run() -> None:
        store, lease, start_s = server.store, server.lease, time.time() - 3600
        await submit_running(store, lease, "j_one", now=start_s, project="vision", goodput=0.9)
        await interrupt(store, lease, "j_one", start_s + 60, 1, 1, 0, 3, 2, 2)
        await record_node_faults(store, lease, "n1", start_s, NodeEventKind.AGENT_LOST, NodeEventKind.LINK)

    server.do(run())


def test_the_commands_of_the_page_work(cli: Cli) -> None:
    for block in blocks(PAGE, "console"):
        for line in block.commands:
            command, *arguments = line.split()
            assert command == "regroup"
            done = cli(*arguments)
            assert done.code == 0 and done.out, done.err


def test_causes_phases_and_nodes_are_tables(cli: Cli) -> None:
    lines = cli("reliability", "--from", "2h").out.splitlines()
    assert lines[0] == "1 failures, 0 planned changes; mean recovery 9.00 s"
    assert lines[1].startswith("goodput 90.0 %; 0.01 of 4.0")
    rows = [line.split() for line in lines]
    assert ["rank_exit", "failure", "1", "9.00", "s", "9.00", "s", "0", "0.01"] in rows
    assert ["first", "step", "1", "2.00", "s", "2.00", "s"] in rows
    assert ["n1", "2", "agent_lost", "1,", "link", "1"] in rows
    assert cli("reliability", "--project", "speech").out.splitlines()[0].startswith("0 failures")


def test_the_report_is_printed_as_json(cli: Cli) -> None:
    found = cli("reliability", "--json").json
    assert (found["incidents"], found["recovery"]["mean_s"]) == (1, 9.0)


def test_settings_that_were_changed_are_a_table(cli: Cli, server: AppServer) -> None:
    head, *rows = cli("settings", "--changed").out.splitlines()
    assert head.split() == ["VARIABLE", "VALUE", "SOURCE"]
    assert ["REGROUP_STATE_DIR", str(server._settings.state_dir), "flag"] in [row.split() for row in rows]
    assert len(cli("settings").out.splitlines()) > len(rows) + 50
    assert {"name": "port", "value": 8500}.items() <= {each["name"]: each for each in cli("settings", "--json").json}[
        "port"
    ].items()
