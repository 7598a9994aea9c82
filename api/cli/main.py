"""The command line. Commands import their dependencies when they run: start-up imports neither torch nor ray."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import typer

from regroup.api.cli.commands import (
    apply,
    budget,
    chaos,
    checkpoints,
    compare,
    evidence,
    exec,
    gateway,
    hooks,
    inspect,
    mcp,
    plan,
    projects,
    queue,
    ranks,
    resize,
    run,
    serve,
    simulate,
    submit,
    suspend,
    watch,
)
from regroup.api.cli.commands.access import audit, identities, login, secrets, sessions, tokens
from regroup.api.cli.commands.cluster import drain, nodes, probe, topology
from regroup.api.cli.commands.reports import overview, reliability, settings, usage
from regroup.api.cli.common import environment, exit_codes, groups, output
from regroup.api.cli.common.dry_run import report_dry_run, request_dry_run

app = typer.Typer(
    name="regroup",
    cls=groups.GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Elastic multi-node training on Ray: jobs recover from failures and change their size while they train.",
)

VERBS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Server", (serve.serve, serve.down, serve.demo, gateway.gateway)),
    (
        "Jobs",
        (
            submit.submit,
            run.run,
            submit.validate,
            resize.resize,
            resize.sizes,
            suspend.suspend,
            suspend.resume,
            budget.budget,
            submit.cancel,
            submit.release,
        ),
    ),
    (
        "Inspect",
        (
            overview.overview,
            inspect.jobs,
            inspect.get,
            inspect.why,
            watch.watch,
            watch.logs,
            ranks.ranks,
            inspect.stacks,
            exec.exec,
        ),
    ),
    (
        "History",
        (
            compare.curves,
            compare.diff,
            inspect.steps,
            inspect.events,
            inspect.ledger,
            watch.changes,
            evidence.story,
            evidence.evidence,
        ),
    ),
    (
        "Checkpoints",
        (checkpoints.checkpoints, checkpoints.verify, checkpoints.pin, checkpoints.unpin, checkpoints.export),
    ),
    (
        "Nodes",
        (nodes.nodes, nodes.clusters, nodes.cordon, nodes.uncordon, drain.drain, drain.undrain, topology.topology),
    ),
    ("Reports", (usage.usage, reliability.reliability, settings.settings)),
    ("Plan", (plan.plan, simulate.simulate, queue.queue, queue.what_if)),
    ("Agents", (mcp.mcp,)),
    ("Access", (login.login, login.logout, sessions.console, identities.whoami, apply.apply)),
)
"""All top-level commands, in the groups that `--help` and docs/cli.md show."""

for _group, _verbs in VERBS:
    for _verb in _verbs:
        _class = run.RunCommand if _verb is run.run else None
        app.command(_verb.__name__.replace("_", "-"), cls=_class, rich_help_panel=_group)(_verb)

GROUPS: tuple[tuple[str, str, typer.Typer], ...] = (
    ("Measure", "probe", probe.app),
    ("Projects", "projects", projects.app),
    ("Identities", "identities", identities.app),
    ("Members of projects", "members", identities.members_app),
    ("Tokens", "token", tokens.app),
    ("Sessions of browsers", "sessions", sessions.app),
    ("Profiles", "profiles", login.app),
    ("Audit records", "audit", audit.app),
    ("Notifications", "hooks", hooks.app),
    ("Secrets", "secret", secrets.app),
    ("Fault injection", "chaos", chaos.app),
)
"""Commands that have subcommands: heading, name, and the Typer application of the subcommands."""

for _group, _name, _subcommands in GROUPS:
    app.add_typer(_subcommands, name=_name, rich_help_panel=_group)


app.command("help", hidden=True)(groups.show_help)
app.command("version", hidden=True)(groups.show_version)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token of the server.  [default: REGROUP_TOKEN, REGROUP_TOKEN_FILE, or the token of "
            "this machine's server]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Let the server check a change and print its result; nothing is changed."),
    ] = False,
) -> None:
    request_dry_run(context.invoked_subcommand, dry_run)
    if token_file is not None:
        os.environ.pop("REGROUP_TOKEN", None)
        os.environ["REGROUP_TOKEN_FILE"] = str(token_file)
    if version:
        groups.show_version()
        raise typer.Exit


@runtime_checkable
class _UsageError(Protocol):
    """The error of the parser about an invalid command line."""

    exit_code: int

    def format_message(self) -> str: ...

    def show(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code (`exit_codes.MEANINGS`)."""
    from regroup.service.domain.errors import RegroupError

    words = sys.argv[1:] if arguments is None else list(arguments)
    output.forget_json()
    environment.warn_of_unknown_variables()
    try:
        code = app(args=words, standalone_mode=False)
    except RegroupError as error:
        sys.exit(exit_codes.report(error, as_json=output.is_json_requested()))
    except typer.Abort:
        sys.exit(exit_codes.INTERRUPTED)
    except KeyboardInterrupt:
        output.print_message("\ninterrupted")
        sys.exit(exit_codes.INTERRUPTED)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        sys.exit(_report_usage(error, words))
    if not code:
        report_dry_run()
    sys.exit(code if isinstance(code, int) else 0)


def _report_usage(error: _UsageError, words: Sequence[str]) -> int:
    """Print an invalid command line's error. The parser may have stopped before it reached `--json`."""
    own = words[: words.index("--")] if "--" in words else words
    if output.is_json_requested() or ("--json" in own and own[0] not in ("run", "chaos")):
        failure = exit_codes.Failure("invalid_command_line", exit_codes.USAGE, error.format_message())
        return exit_codes.print_failure(failure, as_json=True)
    error.show()
    return error.exit_code
