"""The page about audit records, typed against a server, and the output of its commands."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.commands.access.audit import describe_change
from regroup.api.schemas.audit import AuditRecord
from regroup.service.local.api_token import user_name
from regroup.service.store.schema.access_tables import audit
from tests.support.jobs.shell_commands import blocks
from tests.support.servers.app_server import AppServer

PAGE = "docs/operations/audit.md"
Cli = Callable[..., Any]


def test_the_commands_of_the_page_work(
    cli: Cli, server: AppServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes, exports, verifies = (block.commands for block in blocks(PAGE, "console"))
    listed = [_type(cli, line) for line in changes][-1].out.splitlines()
    assert listed[0].split() == ["TIME", "ACTOR", "ACTION", "OBJECT", "PROJECT", "FROM", "CHANGE"]
    assert listed[1].split()[2:] == [user_name(), "projects.put", "vision", "vision", "127.0.0.1", "created"]
    cli("projects", "set", "vision", "limit=9")
    assert cli("audit", "list", "--action", "projects.put", "--limit", "1").out.rstrip().endswith("limit: 8 → 9")

    server.do(server.store.audit.seal())
    exported, verified = (_type(cli, line) for line in exports)
    assert exported.err == "2 records; continue with --after 2\n"
    assert [json.loads(line)["position"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()] == [1, 2]
    whole = _type(cli, verifies[0])
    assert whole.out == verified.out
    found = re.fullmatch(r"2 records are complete and unchanged; the chain ends with (2:[0-9a-f]{64})\n", whole.out)
    assert found is not None, whole.out
    assert cli("audit", "verify", "--noted", found[1], "--json").json["fault"] == ""

    server.do(_falsify(server))
    changed = cli("audit", "verify")
    assert changed.code == 1 and changed.out.startswith("NOT COMPLETE: record 1 was changed")
    assert cli("audit", "verify", "audit.jsonl").code == 0


def test_a_file_from_the_middle_is_verified(cli: Cli, server: AppServer, tmp_path: Path) -> None:
    for limit in range(6):
        cli("projects", "set", "speech", f"limit={limit + 1}")
    server.do(server.store.audit.seal())
    part = tmp_path / "part.jsonl"
    done = cli("audit", "export", "--after", "2", "--output", part)
    lines = part.read_text().splitlines()
    assert done.err.startswith(f"{len(lines)} records") and json.loads(lines[0])["position"] == 3
    assert cli("audit", "verify", part).code == 0
    assert cli("audit", "export", "--after", "2").out == part.read_text()
    part.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    assert "is missing" in cli("audit", "verify", part).out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("list", "--since", "soon"), "such as 12h or 7d"),
        (("verify", "--noted", "3"), "POSITION:DIGEST"),
        (("list", "--actor", "a b"), "actor"),
        (("list", "--actor", ""), "actor"),
    ],
)
def test_a_mistake_is_named(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    refused = cli("audit", *arguments)
    assert refused.code != 0 and text in refused.err, refused.err


def test_a_file_that_is_not_an_export_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}\n")
    refused = cli("audit", "verify", tmp_path / "x")
    assert refused.code != 0 and "line 1 is not an audit record" in refused.err


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (None, {"limit": 8}, "created"),
        (None, {"role": "viewer"}, "role: viewer"),
        ({"limit": 8}, None, "removed"),
        ({"limit": None, "weight": 1.0}, {"limit": 8, "weight": 1.0}, "limit: none → 8"),
        ({"intents": {}}, {"intents": {"cancel": True}}, 'intents: none → {"cancel": true}'),
    ],
)
def test_a_change_is_one_short_text(before: Any, after: Any, text: str) -> None:
    record = AuditRecord(
        id=1, time_s=1.0, actor="ana", token_id=None, address="::1", action="x.y", project=None, object="o",
        before=before, after=after, position=None, digest=None,
    )  # fmt: skip
    assert describe_change(record) == text


async def _falsify(server: AppServer) -> None:
    async with server.store._database.write() as connection:
        await connection.execute(audit.update().where(audit.c.position == 1).values(actor="bob"))


def _type(cli: Cli, line: str) -> Any:
    command, *arguments = line.split()
    assert command == "regroup"
    done = cli(*arguments)
    assert done.code == 0, done.err
    return done
