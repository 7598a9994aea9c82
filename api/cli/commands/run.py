"""The command run: submit a spec file, or a program with torchrun's flags, and watch it until it ends."""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from regroup.api.cli.common.interrupt import stating
from regroup.api.cli.common.options import AsJson, Server, Settings
from regroup.api.cli.common.output import print_message
from regroup.api.cli.spec_input import requirements
from regroup.api.cli.spec_input import working_dir as directory
from regroup.api.cli.spec_input.torchrun_args import (
    Flags,
    NodeDevices,
    counts_devices,
    job_name,
    ranks_per_node,
    script_spec,
)
from regroup.api.cli.spec_input.torchrun_options import OPTIONS, read_command_line
from regroup.service.domain.errors import SpecError

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.jobs import Job

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
_DEFAULT = Flags()
_NOT_FOR_SPECS = "torchrun's flags and --name do not apply to a spec file; use --set to change a field"
_NOTES = "regroup.torchrun_notes"
"""Key of the notes on ignored options in the context of the command."""

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
    str | None,
    typer.Option(
        "--nproc-per-node",
        metavar="N|gpu|cpu|auto",
        help="Number of ranks per node; gpu, cpu: one for each device of a node of the cluster; auto: gpu if there are "
        "any.  [default: 1]",
    ),
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
Role = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Value of ROLE_NAME.  [default: default]")]
NoPython = Annotated[bool, typer.Option("--no-python", help="PROGRAM is not a Python file, but a command.")]
Tee = Annotated[
    str | None,
    typer.Option(
        "--tee",
        "-t",
        metavar="N|RANK:N,...",
        help="Show the output of all ranks, or of some, with prefixes: 1 stdout, 2 stderr, 3 both. A rank is numbered "
        "on its node; with a spec file, in the job.",
    ),
]
Redirects = Annotated[
    str | None,
    typer.Option("--redirects", "-r", metavar="N|RANK:N,...", help="Do not show this output, unless --tee does."),
]
Filter = Annotated[
    str | None, typer.Option("--local-ranks-filter", metavar="RANK,...", help="Show the output of these ranks only.")
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Run only a few steps, restart from memory or from the program's own checkpoint, and compare the state of "
        "every rank. Exit 0 if a restart changes nothing, 1 otherwise.",
    ),
]


class RunCommand(TyperCommand):
    """A command that also takes the options of torchrun. They end at a program, but not at a spec file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take torchrun's options out of the arguments, then parse those of regroup."""
        ctx.token_normalize_func = _with_hyphens
        ctx.allow_interspersed_args = False
        if args and not ctx.resilient_parsing:
            try:
                line = read_command_line(args, _own_options(self), os.environ, is_spec)
            except SpecError as error:
                raise typer.BadParameter(str(error), ctx) from error
            if line.is_spec and line.changes_the_job:
                raise typer.BadParameter(_NOT_FOR_SPECS, ctx)
            ctx.meta[_NOTES] = line.notes()
            ctx.allow_interspersed_args = line.is_spec
            args = line.for_regroup()
        return super().parse_args(ctx, args)


def run(
    ctx: typer.Context,
    what: What,
    nnodes: Nodes = None,
    nproc_per_node: Ranks = None,
    max_restarts: Restarts = None,
    module: Module = False,
    no_python: NoPython = False,
    role: Role = None,
    tee: Tee = None,
    redirects: Redirects = None,
    local_ranks_filter: Filter = None,
    ray_train: RayTrain = False,
    name: Name = None,
    settings: Settings = None,
    working_dir: directory.WorkingDir = None,
    requirements_file: requirements.Requirements = None,
    check: Check = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job and watch it until it ends. Accepts a spec file, or a program with torchrun's flags.

    The output of rank 0 is shown as it arrives; --tee adds that of others. Without a terminal, standard output has only
    that output.
    """
    from regroup.api.cli.commands.restart_check import follow_check
    from regroup.api.cli.commands.watch import watch_to_the_end
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.spec_input.field_places import add_places
    from regroup.api.cli.spec_input.program_file import check_command, check_program, check_sent_entrypoint
    from regroup.api.cli.spec_input.spec_file import read_spec, set_value
    from regroup.api.client.restart_check import spec_of_check
    from regroup.api.live.output_choice import OutputChoice, choose_sources, parse_ranks, parse_streams

    output = OutputChoice(
        parse_streams(tee or "0"),
        parse_streams(redirects or "0"),
        None if local_ranks_filter is None else parse_ranks(local_ranks_filter),
    )
    given: dict[str, Any] = {
        "nnodes": nnodes,
        "nproc_per_node": nproc_per_node,
        "max_restarts": max_restarts,
        "role": role,
        "module": module or None,
        "no_python": no_python or None,
    }
    flags = Flags(**{flag: value for flag, value in given.items() if value is not None})
    is_file = is_spec(what[0]) and not module and not ray_train
    nodes: Sequence[NodeDevices] = ()
    if is_file:
        _check_spec_alone(what[1:], flags, name)
        spec = directory.with_working_dir(read_spec(Path(what[0]), settings or ()), working_dir, Path(what[0]).parent)
        spec = requirements.with_requirements(spec, requirements_file, Path(what[0]).parent)
    else:
        if no_python and ray_train:
            raise typer.BadParameter("--no-python does not apply to a program that calls Ray Train")
        for note in ctx.meta.get(_NOTES, ()):
            print_message(note)
        if counts_devices(flags):
            with connect(server) as client:
                nodes = _nodes_of(client)
        script_name = name or job_name(what[0], flags, secrets.token_hex(3))
        if ray_train:
            spec = _ray_train_spec(what, flags, given, settings or (), script_name, nodes)
        else:
            spec = script_spec(what, flags, cwd=Path.cwd(), name=script_name, nodes=nodes)
        for setting in settings or ():
            set_value(spec, setting)
        spec = requirements.with_requirements(
            directory.for_program(spec, working_dir, Path.cwd()), requirements_file, Path.cwd()
        )
        if no_python:
            check_command(what[0], Path.cwd())
        elif not module and not any(setting.startswith("workload.entrypoint=") for setting in settings or ()):
            check_program(what[0], Path.cwd())
    spec = spec_of_check(spec) if check else spec
    places = add_places(Path(what[0]), settings or ()) if is_file else contextlib.nullcontext()
    may_exist = "interrupted; `regroup jobs` shows whether the job was submitted"
    with connect(server, patient=True) as client, stating(may_exist):
        with places:
            check_sent_entrypoint(spec)
            job = client.submit(directory.upload_code(client, spec))
        is_silent = job.workload_kind == "builtin" and output == OutputChoice()
        ranks = _most_ranks(job)
        has_nodes = not is_file and not (ray_train and nproc_per_node is None)
        per_node = ranks_per_node(flags, nodes) if has_nodes else ranks
        sources = None if is_silent else choose_sources(output, ranks, per_node)
        follow_to_the_end = follow_check if check else watch_to_the_end
        follow_to_the_end(client, job, as_json=as_json, sources=sources)


def is_spec(word: str) -> bool:
    """Return True if `word` names a spec file rather than a program."""
    return word.endswith(_SPEC_SUFFIXES)


def _most_ranks(job: "Job") -> int:
    """Return the largest number of ranks that the job can have."""
    if job.spec is None:
        return 1
    layout = job.spec.layout
    return layout.layout_at(layout.dp.max).world_size


def _ray_train_spec(
    what: list[str],
    flags: Flags,
    given: Mapping[str, Any],
    settings: Sequence[str],
    name: str,
    nodes: Sequence[NodeDevices],
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
    return ray_train_spec(what, declared, flags, overridden, cwd=Path.cwd(), name=name, nodes=nodes)


def _check_spec_alone(rest: list[str], flags: Flags, name: str | None) -> None:
    if rest:
        raise typer.BadParameter(f"a spec file accepts no arguments: {' '.join(rest)}; use --set to change a field")
    if flags != _DEFAULT or name is not None:
        raise typer.BadParameter(_NOT_FOR_SPECS)


def _own_options(command: TyperCommand) -> Mapping[str, bool]:
    """Return the options of regroup → whether they take a value."""
    of_torchrun = {f"--{option.name}" for option in OPTIONS}
    return {
        name: not getattr(each, "is_flag", False)
        for each in command.params
        if each.param_type_name == "option" and not of_torchrun & set(each.opts)
        for name in each.opts
    }


def _nodes_of(client: "Client") -> Sequence[NodeDevices]:
    return [NodeDevices(node.name, node.cpus, node.gpus) for node in client.nodes() if node.node_id is not None]


def _with_hyphens(option: str) -> str:
    return option.replace("_", "-")
