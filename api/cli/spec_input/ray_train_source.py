"""Conversion of a Ray Train program to a job spec. Reads the source without running it. Pure."""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from regroup.api.cli.spec_input.torchrun_args import Flags, NodeDevices, script_spec
from regroup.service.domain.errors import FieldIssue, SpecError

UNLIMITED_FAILURES = 1_000_000
"""Number of allowed failures for Ray Train's -1, which means unlimited."""
_NOT_LITERAL: Any = object()
"""Marks an argument that is not a literal or a constant of the module."""


@dataclass(frozen=True)
class DeclaredRun:
    """Settings that a program's source declares. None: the source computes the value."""

    workers: tuple[int, int] | None = (1, 1)
    """Smallest and largest number of workers."""
    use_gpu: bool | None = False
    resources: Mapping[str, float] | None = None
    """Resources of one worker under Ray's names; None for Ray Train's default."""
    max_failures: int | None = 0


def parse_declared_run(source: str) -> DeclaredRun:
    """Parse the arguments of `ScalingConfig` and `FailureConfig` in `source`: literals, or constants of the module.

    Raises:
        SpecError: `source` is not valid Python.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise SpecError([FieldIssue("workload.entrypoint", f"is not valid Python: {error}")]) from error
    constants = _constants(module)

    def declared_value(of: str, argument: str, default: object, position: int | None = None) -> Any:
        calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and _name(node.func) == of]
        values = [_argument(call, argument, position, constants, default) for call in calls] or [default]
        return values[0] if all(value == values[0] for value in values) else _NOT_LITERAL

    use_gpu = declared_value("ScalingConfig", "use_gpu", False)
    resources = declared_value("ScalingConfig", "resources_per_worker", None)
    failures = declared_value("FailureConfig", "max_failures", 0, 0)
    return DeclaredRun(
        _range(declared_value("ScalingConfig", "num_workers", 1)),
        use_gpu if isinstance(use_gpu, bool) else None,
        resources if isinstance(resources, dict) else None,
        failures if isinstance(failures, int) else None,
    )


def ray_train_spec(
    program: Sequence[str],
    declared: DeclaredRun,
    flags: Flags,
    overridden: Collection[str],
    *,
    cwd: PurePath,
    name: str,
    nodes: Sequence[NodeDevices] = (),
) -> dict[str, Any]:
    """Return the spec of a job that runs `program`, with the settings that its source declares.

    Args:
        program: Path of the program, then its arguments.
        declared: Settings from the program's source.
        flags: Values of torchrun's flags.
        overridden: Fields of the spec that flags or `--set` determine; `declared` does not change them.
        cwd: Folder that the program runs in.
        name: Name of the job.
        nodes: Nodes of the cluster, for a number of ranks that follows their devices.

    Raises:
        SpecError: neither the source nor a flag sets a required value; the error names all of them.
    """
    spec = script_spec(program, flags, cwd=cwd, name=name, nodes=nodes)
    spec["workload"]["kind"] = "ray_train"
    missing: list[FieldIssue] = []
    if not _is_overridden("layout.dp", overridden):
        if declared.workers is None:
            missing.append(_undeclared("num_workers", "--nproc-per-node N, with --nnodes MIN:MAX for a range"))
        else:
            low, high = declared.workers
            spec["layout"]["dp"] = {"min": low, "target": high, "max": high}
    if not _is_overridden("resources", overridden) and "resources" not in spec:
        if declared.use_gpu is None:
            missing.append(_undeclared("use_gpu", "--set resources.device=cpu or --set resources.device=cuda"))
        else:
            spec["resources"] = _resources(declared.use_gpu, declared.resources or {})
    if missing:
        raise SpecError(missing)
    if not _is_overridden("recovery", overridden) and declared.max_failures is not None:
        allowed = UNLIMITED_FAILURES if declared.max_failures < 0 else declared.max_failures
        spec["recovery"] = {"budgets": {"user_error": allowed}}
    return spec


def _resources(use_gpu: bool, of_a_worker: Mapping[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {"device": "cuda" if use_gpu else "cpu", "cpus": max(1, round(of_a_worker.get("CPU", 1)))}
    if memory := of_a_worker.get("memory"):
        found["memory"] = int(memory)
    return found


def _undeclared(argument: str, flag: str) -> FieldIssue:
    message = f"is neither a literal nor a constant in the program's source: use {flag}"
    return FieldIssue(f"ScalingConfig({argument})", message)


def _is_overridden(field: str, overridden: Collection[str]) -> bool:
    return any(f"{each}.".startswith(f"{field}.") or f"{field}.".startswith(f"{each}.") for each in overridden)


def _constants(module: ast.Module) -> dict[str, Any]:
    """Return the module's top-level names that are assigned once, with their literal values."""
    stored = [node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    found: dict[str, Any] = {}
    for line in module.body:
        match line:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if stored.count(name) == 1:
                found[name] = _value(value, {})
            case _:
                pass
    return found


def _argument(call: ast.Call, name: str, position: int | None, constants: Mapping[str, Any], default: object) -> Any:
    if any(keyword.arg is None for keyword in call.keywords) or (call.args and position is None):
        return _NOT_LITERAL
    if position is not None and len(call.args) > position:
        return _value(call.args[position], constants)
    return next((_value(keyword.value, constants) for keyword in call.keywords if keyword.arg == name), default)


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return constants.get(node.id, _NOT_LITERAL)
    if isinstance(node, ast.Tuple):
        parts = tuple(_value(part, constants) for part in node.elts)
        return _NOT_LITERAL if _NOT_LITERAL in parts else parts
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _NOT_LITERAL


def _range(workers: Any) -> tuple[int, int] | None:
    low, high = workers if isinstance(workers, tuple) and len(workers) == 2 else (workers, workers)
    return (low, high) if type(low) is int and type(high) is int and 1 <= low <= high else None


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
