"""Generator of docs/cli.md from the commands. `python -m regroup.api.cli.docs.cli_reference` prints the page."""

import typer.main
from typer.core import TyperCommand, TyperGroup

from regroup.api.cli.common.exit_codes import MEANINGS
from regroup.api.cli.main import GROUPS, VERBS, app

_HEAD = """# Command line

`regroup COMMAND --help` prints the same text. Every command that shows or changes a job accepts `--json`: standard
output then contains only JSON, and messages go to standard error. `steps`, `events` and `logs` print one JSON document
per line. An error is one JSON document on standard error:
`{"error": {"code": …, "exit_code": …, "message": …, "fields": […]}}`.

`regroup --install-completion` installs completion for your shell: commands, options, and the names of jobs, nodes and
projects, which the server must return within a second.

The server is the one in `--server URL`, else in `REGROUP_SERVER`, else the one that `regroup serve` started on this
machine. Its address is in `server.json` in the state directory: `REGROUP_STATE_DIR`, or `~/.regroup` if unset.
`HOST:PORT` and `unix:PATH` are accepted, too. While a server does not answer, commands that follow a job state it on
standard error and try again for two minutes.

Every server asks for its token. Commands find the token of this machine's server by themselves. For another server,
give them a copy of its token file: `regroup --token-file FILE COMMAND`, or the variables `REGROUP_TOKEN_FILE` or
`REGROUP_TOKEN`.

This page is generated: `python -m regroup.api.cli.docs.cli_reference > docs/cli.md`.
"""


def render() -> str:
    """Return the page as Markdown."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    parts = [_HEAD, "## Exit codes\n\n| code | meaning |\n|---|---|"]
    parts[-1] += "".join(f"\n| {code} | {meaning} |" for code, meaning in sorted(MEANINGS.items())) + "\n"
    parts.append("`regroup exec` exits with its command's code: 124 after `--timeout`, and 128 + N after signal N.\n")
    for group, verbs in VERBS:
        parts.append(f"## {group}\n")
        parts += [_verb(command, verb.__name__.replace("_", "-")) for verb in verbs]
    for group, name, _ in GROUPS:
        inner = command.commands[name]
        assert isinstance(inner, TyperGroup)
        # A group that can be called without a subcommand is shown like a command.
        parts.append(f"## {group}\n")
        parts.append(_verb(command, name) if inner.invoke_without_command else f"{(inner.help or '').strip()}\n")
        parts += [_verb(inner, verb, f"{name} {verb}") for verb in inner.commands]
    return "\n".join(parts)


def _verb(group: TyperGroup, name: str, typed: str = "") -> str:
    command = group.commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)
    context = command.make_context(f"regroup {typed or name}", [], resilient_parsing=True)
    usage = " ".join([f"regroup {typed or name}", *command.collect_usage_pieces(context)])
    lines = [f"### `{usage}`", "", (command.help or "").strip(), "", "| option | meaning |", "|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            lines.append(f"| `{record[0]}` | {' '.join(record[1].split())} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
