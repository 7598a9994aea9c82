"""The command line. Each verb imports what it needs when it runs: starting up imports neither torch nor ray."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from regroup.api.cli import (
    chaos,
    draining,
    evidence,
    executing,
    exits,
    nodes,
    planned,
    planning,
    probing,
    projects,
    reading,
    resizing,
    running,
    serving,
    simulating,
    submitting,
    suspending,
    topology,
    watching,
)

app = typer.Typer(
    name="regroup",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Elastic multi-node training on Ray: your job finishes, with the right numbers, whatever dies.",
)

VERBS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Server", (serving.serve, serving.down, serving.demo)),
    (
        "Jobs",
        (
            submitting.submit,
            running.run,
            submitting.validate,
            resizing.resize,
            suspending.suspend,
            suspending.resume,
            submitting.cancel,
            submitting.release,
        ),
    ),
    ("Planning", (planning.plan, planned.planned)),
    ("Looking", (reading.ls, reading.get, reading.why, watching.watch, watching.logs, reading.stacks, executing.exec)),
    ("Nodes", (nodes.nodes, nodes.cordon, nodes.uncordon, draining.drain, topology.topology, simulating.simulate)),
    ("History", (reading.metrics, reading.events, evidence.evidence, reading.checkpoints, reading.export)),
)
"""All verbs, grouped as `--help` and docs/cli.md show them."""

for _group, _verbs in VERBS:
    for _verb in _verbs:
        _class = running.RunCommand if _verb is running.run else None
        app.command(_verb.__name__, cls=_class, rich_help_panel=_group)(_verb)

GROUPS: tuple[tuple[str, str, typer.Typer], ...] = (
    ("Measuring", "probe", probing.app),
    ("Projects", "projects", projects.app),
    ("Chaos", "chaos", chaos.app),
)
"""Verbs that have verbs of their own: heading, name, and those."""

for _group, _name, _verbs_of_its_own in GROUPS:
    app.add_typer(_verbs_of_its_own, name=_name, rich_help_panel=_group)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        from regroup import __version__

        print(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code (`exits.MEANINGS`)."""
    from regroup.service.errors import RegroupError

    try:
        app(args=arguments)
    except RegroupError as error:
        sys.exit(exits.report(error))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
