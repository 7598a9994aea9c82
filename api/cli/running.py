"""The verb run: a spec file, or a program with torchrun's flags; submitted, and followed to its end."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from regroup.api.cli import code, requirements
from regroup.api.cli.options import AsJson, Server, Settings
from regroup.api.cli.output import say
from regroup.api.cli.torchrun import Flags, job_name, script_spec

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
_DEFAULT = Flags()

What = Annotated[
    list[str],
    typer.Argument(
        metavar="SPEC | PROGRAM [ARGS]...", help="A spec file, or a program and what it is to find in its sys.argv."
    ),
]
Nodes = Annotated[
    str, typer.Option("--nnodes", metavar="N|MIN:MAX", help="Times --nproc-per-node: how many ranks, or from how many.")
]
Ranks = Annotated[str, typer.Option("--nproc-per-node", metavar="N", help="Ranks for each of --nnodes.")]
Restarts = Annotated[
    int, typer.Option("--max-restarts", metavar="N", min=0, help="Errors of the program that are tried again.")
]
Module = Annotated[bool, typer.Option("--module", "-m", help="PROGRAM is a module, as after `python -m`.")]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Of the job; made from the program's if absent.")
]
NoPython = Annotated[bool, typer.Option("--no-python", hidden=True)]
Ignored = Annotated[str | None, typer.Option(hidden=True)]
IgnoredFlag = Annotated[bool, typer.Option(hidden=True)]


class RunCommand(TyperCommand):
    """Options end at a program, as torchrun's do: what follows is the program's. After a spec file they go on."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look for what is to be run, then parse with or without options after it."""
        ctx.token_normalize_func = _with_hyphens
        ctx.allow_interspersed_args = False
        if args and not ctx.resilient_parsing:
            told, _, _ = self.make_parser(ctx).parse_args(list(args))
            ctx.allow_interspersed_args = is_spec(next(iter(told.get("what") or ()), ""))
        return super().parse_args(ctx, args)


def run(
    what: What,
    nnodes: Nodes = _DEFAULT.nnodes,
    nproc_per_node: Ranks = _DEFAULT.nproc_per_node,
    max_restarts: Restarts = _DEFAULT.max_restarts,
    module: Module = False,
    name: Name = None,
    settings: Settings = None,
    working_dir: code.WorkingDir = None,
    requirements_file: requirements.Requirements = None,
    server: Server = None,
    as_json: AsJson = False,
    no_python: NoPython = False,
    rdzv_backend: Ignored = None,
    rdzv_endpoint: Ignored = None,
    rdzv_id: Ignored = None,
    rdzv_conf: Ignored = None,
    node_rank: Ignored = None,
    master_addr: Ignored = None,
    master_port: Ignored = None,
    standalone: IgnoredFlag = False,
) -> None:
    """Submit a job and watch it to its end. Takes a spec file, or a program with torchrun's flags."""
    from regroup.api.cli.connection import connect
    from regroup.api.cli.specfile import read_spec, set_value
    from regroup.api.cli.watching import watch_to_the_end

    flags = Flags(nnodes, nproc_per_node, max_restarts, module)
    if is_spec(what[0]) and not module:
        _refuse_beside_a_spec(what[1:], flags, name)
        spec = code.named(read_spec(Path(what[0]), settings or ()), working_dir, Path(what[0]).parent)
        spec = requirements.listed(spec, requirements_file, Path(what[0]).parent)
    else:
        if no_python:
            raise typer.BadParameter("a rank is forked from a Python that has torch imported: run a Python file or -m")
        rendezvous = (rdzv_backend, rdzv_endpoint, rdzv_id, rdzv_conf, node_rank, master_addr, master_port)
        if standalone or any(given is not None for given in rendezvous):
            say("--standalone, --rdzv-*, --node-rank and --master-* are ignored: the job's ranks find each other")
        named = name or job_name(what[0], flags, secrets.token_hex(3))
        spec = script_spec(what, flags, cwd=Path.cwd(), name=named)
        for setting in settings or ():
            set_value(spec, setting)
        spec = requirements.listed(code.of_program(spec, working_dir, Path.cwd()), requirements_file, Path.cwd())
    with connect(server, patient=True) as client:
        watch_to_the_end(client, client.submit(code.uploaded(client, spec)), as_json=as_json)


def is_spec(word: str) -> bool:
    """Whether this names a spec file rather than a program."""
    return word.endswith(_SPEC_SUFFIXES)


def _refuse_beside_a_spec(rest: list[str], flags: Flags, name: str | None) -> None:
    if rest:
        raise typer.BadParameter(f"a spec file takes no arguments: {' '.join(rest)}; --set changes a field")
    if flags != _DEFAULT or name is not None:
        raise typer.BadParameter(
            "a spec file says itself what torchrun's flags and --name would; --set changes a field"
        )


def _with_hyphens(option: str) -> str:
    return option.replace("_", "-")
