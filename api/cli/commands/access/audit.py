"""Commands of `regroup audit`: who changed what, and whether the records are complete."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table
from regroup.api.cli.common.times import parse_time
from regroup.service.domain.audit import ORIGIN, AuditRecord, ChainEnd, ChainReport, ChainVerifier
from regroup.service.domain.errors import FieldIssue, SpecError

if TYPE_CHECKING:
    from regroup.api.schemas.audit import AuditRecord as Shown

app = typer.Typer(
    cls=GroupedCommands,
    help="Show who changed what, export the records and verify them; see docs/operations/audit.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OfProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        autocompletion=complete_project,
        help="Changes in this project.  [default: all that you administer]",
    ),
]
Actor = Annotated[str | None, typer.Option("--actor", metavar="IDENTITY", help="Changes by this identity.")]
Action = Annotated[
    str | None, typer.Option("--action", metavar="ACTION", help="Changes of this kind, for example jobs.cancel.")
]
Object = Annotated[
    str | None, typer.Option("--object", metavar="NAME", help="Changes of the object with this id or name.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Changes from then on: 7d (ago), or 2026-11-01T12:00.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Changes before then.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Largest number of records.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.  [default: standard output]")
]
After = Annotated[int, typer.Option("--after", metavar="POSITION", min=0, help="Only records above this position.")]
Exported = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="Output of `regroup audit export`.  [default: the records of the server]"),
]
Noted = Annotated[
    str | None,
    typer.Option("--noted", metavar="POSITION:DIGEST", help="End of the chain that an earlier verification printed."),
]


def audit_list(
    project: OfProject = None,
    actor: Actor = None,
    action: Action = None,
    object_: Object = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List changes, the newest first."""
    from regroup.api.cli.common.connection import connect

    now = time.time()
    times = {"since_s": parse_time("--since", since, now), "until_s": parse_time("--until", until, now)}
    with connect(server) as client:
        pages = client.audit(project=project, actor=actor, action=action, object=object_, **times)
        found = list(islice(pages, limit))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.time_s)), each.actor, each.action, each.object,
            each.project or "-", each.address, describe_change(each),
        )
        for each in found
    ]  # fmt: skip
    print_table(("TIME", "ACTOR", "ACTION", "OBJECT", "PROJECT", "FROM", "CHANGE"), rows)


def audit_export(project: OfProject = None, after: After = 0, output: Output = None, server: Server = None) -> None:
    """Write the sealed records as JSON lines, the oldest first."""
    from regroup.api.cli.common.connection import connect

    count, last = 0, after
    with connect(server) as client, nullcontext(sys.stdout) if output is None else output.open("w") as file:
        for record in client.audit_export(project=project, after=after):
            file.write(record.model_dump_json() + "\n")
            count, last = count + 1, record.position or last
    print_message(f"{count} records; continue with --after {last}")


def audit_verify(
    exported: Exported = None, noted: Noted = None, server: Server = None, as_json: AsJson = False
) -> None:
    """Verify that no record was changed and none is missing. The exit code is 1 if one was or is.

    Note the end that the command prints in another place. With `--noted`, a later verification also finds a
    recalculated chain.
    """
    from regroup.api.cli.common.connection import connect

    point = None if noted is None else _parse_point(noted)
    if exported is not None:
        report = _verify_file(exported, point)
    else:
        with connect(server) as client:
            report = client.verify_audit(point)
    if as_json:
        print_json({"count": report.count, "end": vars(report.end), "fault": report.fault})
    else:
        print(_describe_report(report))
    if report.fault:
        raise typer.Exit(1)


def describe_change(record: "Shown") -> str:
    """Return the fields that differ, e.g. `role: viewer → admin`; `created` and `removed` for whole objects."""
    before, after = record.before, record.after
    if before is None and after is None:
        return "-"
    if before is None:
        return "created" if "role" not in after else f"role: {after['role']}"
    if after is None:
        return "removed"
    names = [name for name in after if after[name] != before.get(name)]
    return ", ".join(f"{name}: {_short(before.get(name))} → {_short(after[name])}" for name in names)


def _verify_file(path: Path, noted: ChainEnd | None) -> ChainReport:
    """Verify an export. It may begin after a removed part, so its first record is not verified unless it is the first.

    Raises:
        SpecError: a line is not an audit record.
    """
    from pydantic import ValidationError

    from regroup.api.client.operations.audit import to_sealed
    from regroup.api.schemas.audit import AuditRecord as Line

    def read() -> Iterable[AuditRecord]:
        with path.open() as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield to_sealed(Line.model_validate_json(line))
                except ValidationError as error:
                    message = f"line {number} is not an audit record of `regroup audit export`"
                    raise SpecError([FieldIssue(str(path), message, line[:80])]) from error

    verifier: ChainVerifier | None = None
    for record in read():
        if verifier is None:
            verifier = ChainVerifier(ORIGIN if record.position == 1 else None, noted)
        verifier.add(record)
    return (verifier or ChainVerifier(None, noted)).report()


def _parse_point(text: str) -> ChainEnd:
    position, _, digest = text.partition(":")
    if not (position.isdecimal() and len(digest) == 64):
        message = "must be POSITION:DIGEST, as `regroup audit verify` prints it"
        raise SpecError([FieldIssue("--noted", message, text)])
    return ChainEnd(int(position), digest)


def _describe_report(report: ChainReport) -> str:
    end = f"{report.end.position}:{report.end.digest}"
    if report.fault:
        return f"NOT COMPLETE: {report.fault}. The {report.count} records before it are unchanged; they end with {end}"
    return f"{report.count} records are complete and unchanged; the chain ends with {end}"


def _short(value: Any) -> str:
    text = "none" if value is None or value == {} else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


_VERBS = {"list": audit_list, "export": audit_export, "verify": audit_verify}
for _name, _verb in _VERBS.items():
    app.command(_name)(_verb)
