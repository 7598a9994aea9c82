"""The page about access, typed against a server, and the output of its commands."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.local.api_token import user_name
from tests.support.jobs.shell_commands import blocks

PAGE = "docs/operations/access.md"
HEADING = "Tokens of this server"
"""tests/e2e/pages/test_access_page.py types the blocks below the first heading."""
BY_ANA = (
    "regroup identities create vision-ci --service-account vision --role editor",
    "regroup token create pipeline --for vision-ci --expires 90d",
    "regroup members list vision",
)
Cli = Callable[..., Any]


def test_the_commands_of_the_page_work(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    by_the_owner, for_metrics, limited = (block.commands for block in blocks(PAGE, "console", heading=HEADING))
    printed = [_type(cli, line) for line in by_the_owner]
    assert printed[1].out == "ana@example.com is admin of project vision\n"
    token = printed[2].out.strip()
    assert re.fullmatch(r"rg_\w{12}_[\w-]{43}", token) and "it is not shown again" in printed[2].err

    monkeypatch.setenv("REGROUP_TOKEN", token)
    assert cli("whoami").out == "ana@example.com (user)\nadmin of project vision\n"
    header, *rows = [_type(cli, line) for line in BY_ANA][-1].out.splitlines()
    assert header.split() == ["MEMBER", "ROLE", "PERMISSIONS", "SET", "BY"]
    assert [row.split()[:2] for row in rows] == [["ana@example.com", "admin"], ["vision-ci", "editor"]]
    monkeypatch.delenv("REGROUP_TOKEN")
    scraper = [_type(cli, line) for line in for_metrics][-1].out.strip()
    monkeypatch.setenv("REGROUP_TOKEN", scraper)
    assert cli("whoami").out == "prometheus (user)\nmetrics for the cluster\n"
    assert cli("cordon", "local-1").code == 7 and cli("jobs", "--json").json == []
    monkeypatch.setenv("REGROUP_TOKEN", token)
    shown = _type(cli, limited[0])
    monkeypatch.setenv("REGROUP_TOKEN", shown.out.strip())
    assert cli("whoami").out == "ana@example.com (user)\nviewer of project vision\n"
    assert cli("jobs", "--project", "vision").code == 0

    monkeypatch.setenv("REGROUP_TOKEN", token)
    (row,) = [line.split() for line in cli("token", "list").out.splitlines() if "dashboard" in line]
    assert row[1:6] == ["ana@example.com", "dashboard", "vision", "viewer", "valid"]
    assert cli("token", "revoke", row[0]).out == f"token {row[0]} of ana@example.com is revoked\n"
    monkeypatch.delenv("REGROUP_TOKEN")
    assert cli("identities", "disable", "ana@example.com").out == "ana@example.com is disabled\n"
    monkeypatch.setenv("REGROUP_TOKEN", token)
    refused = cli("whoami")
    assert refused.code == 7 and "'ana@example.com' is disabled" in refused.err
    monkeypatch.delenv("REGROUP_TOKEN")
    assert cli("identities", "enable", "ana@example.com").out == "ana@example.com is enabled\n"
    assert cli("members", "remove", "vision", "ana@example.com").code == 0
    assert cli("identities", "delete", "ana@example.com").out == "ana@example.com deleted\n"
    assert cli("identities", "permit", "prometheus").out == "prometheus has no permissions for the cluster\n"
    assert cli("identities", "delete", "prometheus").code == 0
    left = cli("identities", "list", "--json").json, cli("token", "list", "--json").json
    assert [[each["subject"] for each in found] for found in left] == [["vision-ci"], ["vision-ci"]]


def test_the_owner_is_an_operator(cli: Cli) -> None:
    assert cli("whoami").out == f"{user_name()} (owner, operator of the cluster)\nadmin of every project\n"
    assert cli("whoami", "--json").json["everywhere"] == "admin"


def test_a_person_without_a_project_gets_advice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("identities", "create", "bob")
    monkeypatch.setenv("REGROUP_TOKEN", cli("token", "create", "first", "--for", "bob").out.strip())
    assert "ask an admin of the project for `regroup members set`" in cli("whoami").out
    refused = cli("cordon", "local-1")
    assert refused.code == 7 and "does not have the permission `nodes:write`" in refused.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("token", "create", "mine"), "the owner of the server needs no token"),
        (("token", "create", "x", "--for", "newcomer"), "'newcomer'"),
        (("token", "create", "x", "--for", "newcomer", "--expires", "soon"), "'90s'"),
        (("members", "set", "vision", "newcomer", "chief"), "viewer"),
        (("identities", "create", "x", "--permission", "identities:write"), "use some of metrics, nodes:write"),
        (("identities", "create", "x", "--service-account", "v", "--permission", "metrics"), "manage this account"),
        (("members", "set", "vision", "newcomer", "viewer", "--permission", "everything"), "use some of exec"),
    ],
)
def test_a_mistake_is_named(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    refused = cli(*arguments)
    assert refused.code != 0 and text in refused.err, refused.err


def _type(cli: Cli, line: str) -> Any:
    command, *arguments = line.split()
    assert command == "regroup"
    done = cli(*arguments)
    assert done.code == 0, done.err
    return done
