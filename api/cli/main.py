"""The command line. Commands import their dependencies when they run: start-up imports neither torch nor ray."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from regroup.api.cli.commands import (
    chaos,
    drain,
    evidence,
    exec,
    inspect,
    nodes,
    plan,
    probe,
    projects,
    resize,
    run,
    serve,
    simulate,
    submit,
    suspend,
    topology,
    watch,
)
from regroup.api.cli.common import exit_codes

app = typer.Typer(
    name="regroup",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Elastic multi-node training on Ray: jobs recover from failures and change their size while they train.",
)

VERBS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Server", (serve.serve, serve.down, serve.demo)),
    (
        "Jobs",
        (
            submit.submit,
            run.run,
            submit.validate,
            resize.resize,
            suspend.suspend,
            suspend.resume,
            submit.cancel,
            submit.release,
        ),
    ),
    ("Inspect", (inspect.jobs, inspect.get, inspect.why, watch.watch, watch.logs, inspect.stacks, exec.exec)),
    ("History", (inspect.steps, inspect.events, evidence.evidence, inspect.checkpoints, inspect.export)),
    ("Nodes", (nodes.nodes, nodes.cordon, nodes.uncordon, drain.drain, drain.undrain, topology.topology)),
    ("Plan", (plan.plan, simulate.simulate)),
)
"""All top-level commands, in the groups that `--help` and docs/cli.md show."""

for _group, _verbs in VERBS:
    for _verb in _verbs:
        _class = run.RunCommand if _verb is run.run else None
        app.command(_verb.__name__, cls=_class, rich_help_panel=_group)(_verb)

GROUPS: tuple[tuple[str, str, typer.Typer], ...] = (
    ("Measure", "probe", probe.app),
    ("Projects", "projects", projects.app),
    ("Fault injection", "chaos", chaos.app),
)
"""Commands that have subcommands: heading, name, and the Typer application of the subcommands."""

for _group, _name, _subcommands in GROUPS:
    app.add_typer(_subcommands, name=_name, rich_help_panel=_group)


@app.callback(invoke_without_command=True)
def _root(
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
) -> None:
    if token_file is not None:
        os.environ.pop("REGROUP_TOKEN", None)
        os.environ["REGROUP_TOKEN_FILE"] = str(token_file)
    if version:
        from regroup import __version__

        print(f"regroup {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code (`exit_codes.MEANINGS`)."""
    from regroup.service.domain.errors import RegroupError

    try:
        app(args=arguments)
    except RegroupError as error:
        sys.exit(exit_codes.report(error))
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
