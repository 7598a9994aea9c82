"""The command run: submit a spec file, or a program with torchrun's flags, and watch it until it ends."""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from regroup.api.cli.common.interrupt import stating
from regroup.api.cli.common.options import AsJson, Server, Settings
from regroup.api.cli.common.output import print_message
from regroup.api.cli.spec_input import requirements
from regroup.api.cli.spec_input import working_dir as directory
from regroup.api.cli.spec_input.torchrun_args import Flags, job_name, script_spec

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
_DEFAULT = Flags()

What = Annotated[
    list[str],
    typer.Argument(
        metavar="SPEC | PROGRAM [ARGS]...", help="A spec file, or a program and the arguments for its sys.argv."
    ),
]
Nodes = Annotated[
    str | None,
    typer.Option(
        "--nnodes",
        metavar="N|MIN:MAX",
        help="Number of nodes, or its range. The number of ranks is this times --nproc-per-node.  [default: 1]",
    ),
]
Ranks = Annotated[
    str | None, typer.Option("--nproc-per-node", metavar="N", help="Number of ranks per node.  [default: 1]")
]
Restarts = Annotated[
    int | None,
    typer.Option(
        "--max-restarts", metavar="N", min=0, help="Number of restarts after errors of the program.  [default: 0]"
    ),
]
RayTrain = Annotated[
    bool,
    typer.Option(
        "--ray-train", help="PROGRAM calls Ray Train. Its source sets the number of ranks, unless a flag does."
    ),
]
Module = Annotated[bool, typer.Option("--module", "-m", help="PROGRAM is a module, as after `python -m`.")]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the job.  [default: generated from the program's name]"),
]
NoPython = Annotated[bool, typer.Option("--no-python", hidden=True)]
Ignored = Annotated[str | None, typer.Option(hidden=True)]
IgnoredFlag = Annotated[bool, typer.Option(hidden=True)]


class RunCommand(TyperCommand):
    """A command whose options end at a program, as torchrun's do. After a spec file, more options may follow."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find the spec or program, then parse with or without options after it."""
        ctx.token_normalize_func = _with_hyphens
        ctx.allow_interspersed_args = False
        if args and not ctx.resilient_parsing:
            overridden, _, _ = self.make_parser(ctx).parse_args(list(args))
            ctx.allow_interspersed_args = is_spec(next(iter(overridden.get("what") or ()), ""))
        return super().parse_args(ctx, args)


def run(
    what: What,
    nnodes: Nodes = None,
    nproc_per_node: Ranks = None,
    max_restarts: Restarts = None,
    module: Module = False,
    ray_train: RayTrain = False,
    name: Name = None,
    settings: Settings = None,
    working_dir: directory.WorkingDir = None,
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
    """Submit a job and watch it until it ends. Accepts a spec file, or a program with torchrun's flags.

    The output of rank 0 is shown as it arrives. Without a terminal, standard output has only that output.
    """
    from regroup.api.cli.commands.watch import watch_to_the_end
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.spec_input.field_places import add_places
    from regroup.api.cli.spec_input.program_file import check_program, check_sent_entrypoint
    from regroup.api.cli.spec_input.spec_file import read_spec, set_value
    from regroup.api.live.output import RANK_0

    given: dict[str, Any] = {
        "nnodes": nnodes,
        "nproc_per_node": nproc_per_node,
        "max_restarts": max_restarts,
        "module": module or None,
    }
    flags = Flags(**{flag: value for flag, value in given.items() if value is not None})
    is_file = is_spec(what[0]) and not module and not ray_train
    if is_file:
        _check_spec_alone(what[1:], flags, name)
        spec = directory.with_working_dir(read_spec(Path(what[0]), settings or ()), working_dir, Path(what[0]).parent)
        spec = requirements.with_requirements(spec, requirements_file, Path(what[0]).parent)
    else:
        if no_python:
            raise typer.BadParameter(
                "--no-python: a rank is forked from a Python process that has imported torch. Run a Python file, or "
                "a module with -m"
            )
        rendezvous = (rdzv_backend, rdzv_endpoint, rdzv_id, rdzv_conf, node_rank, master_addr, master_port)
        if standalone or any(given is not None for given in rendezvous):
            print_message(
                "--standalone, --rdzv-*, --node-rank and --master-* are ignored: regroup sets up the rendezvous"
            )
        script_name = name or job_name(what[0], flags, secrets.token_hex(3))
        if ray_train:
            spec = _ray_train_spec(what, flags, given, settings or (), script_name)
        else:
            spec = script_spec(what, flags, cwd=Path.cwd(), name=script_name)
        for setting in settings or ():
            set_value(spec, setting)
        spec = requirements.with_requirements(
            directory.for_program(spec, working_dir, Path.cwd()), requirements_file, Path.cwd()
        )
        if not module and not any(setting.startswith("workload.entrypoint=") for setting in settings or ()):
            check_program(what[0], Path.cwd())
    places = add_places(Path(what[0]), settings or ()) if is_file else contextlib.nullcontext()
    may_exist = "interrupted; `regroup jobs` shows whether the job was submitted"
    with connect(server, patient=True) as client, stating(may_exist):
        with places:
            check_sent_entrypoint(spec)
            job = client.submit(directory.upload_code(client, spec))
        sources = () if job.workload_kind == "builtin" else RANK_0
        watch_to_the_end(client, job, as_json=as_json, sources=sources)


def is_spec(word: str) -> bool:
    """Return True if `word` names a spec file rather than a program."""
    return word.endswith(_SPEC_SUFFIXES)


def _ray_train_spec(
    what: list[str], flags: Flags, given: Mapping[str, Any], settings: Sequence[str], name: str
) -> dict[str, Any]:
    from regroup.api.cli.spec_input.ray_train_source import DeclaredRun, parse_declared_run, ray_train_spec

    overridden = [setting.partition("=")[0] for setting in settings]
    if given["nnodes"] or given["nproc_per_node"]:
        overridden.append("layout.dp")
    if given["max_restarts"] is not None:
        overridden.append("recovery")
    try:
        declared = (
            DeclaredRun(None, None) if flags.module else parse_declared_run(Path(what[0]).read_text(encoding="utf-8"))
        )
    except OSError as error:
        raise typer.BadParameter(f"cannot read {what[0]}: {error.strerror}") from error
    return ray_train_spec(what, declared, flags, overridden, cwd=Path.cwd(), name=name)


def _check_spec_alone(rest: list[str], flags: Flags, name: str | None) -> None:
    if rest:
        raise typer.BadParameter(f"a spec file accepts no arguments: {' '.join(rest)}; use --set to change a field")
    if flags != _DEFAULT or name is not None:
        raise typer.BadParameter("torchrun's flags and --name do not apply to a spec file; use --set to change a field")


def _with_hyphens(option: str) -> str:
    return option.replace("_", "-")
