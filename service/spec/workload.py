"""Workload section of a job spec: a tagged union by `kind`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.data_preparation import DATA_KIND, Files, PreparedData, TaggedPreparedData
from regroup.service.spec.layout_rules import ModelSizes
from regroup.service.spec.models import BuiltinModel, ConvnetModel, TransformerModel
from regroup.service.spec.types import AbsolutePath, FunctionName, Line, Location, ModuleName, SpecModel, Steps, Value

_MAX_ARGS_BYTES = 64 * 1024
"""Longest command line."""
_BYTE_VOCABULARY = 257
"""Vocabulary of the `byte` tokenizer: 256 bytes and the end of a document."""


class TextData(SpecModel):
    """Text that is tokenized once, by content hash, into a token file under `storage_uri`."""

    train: Annotated[Files, Field(min_length=1)]
    """Files, folders, globs or fsspec URIs of the training data."""
    validation: Files = []
    """Held-out files. A file that matches here is excluded from `train`."""
    tokenizer: Location = "byte"
    """`byte`, or the path or URI of a `tokenizers` JSON file."""


class BuiltinWorkload(SpecModel):
    """The built-in trainer on the built-in model families."""

    kind: Literal["builtin"]
    """Workload type."""
    model: BuiltinModel = TransformerModel()
    data: Annotated[Annotated[TextData, Tag("text")] | TaggedPreparedData, DATA_KIND]

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        has_function = isinstance(self.data, PreparedData) and self.data.prepare.function is not None
        if isinstance(self.model, ConvnetModel) and not has_function:
            raise PydanticCustomError(
                "data",
                "a convnet needs records of images and labels: set data.prepare with a function that creates them",
            )
        return self

    @property
    def sample_kind(self) -> str:
        """Kind of the samples: `images` or `tokens`."""
        return "images" if isinstance(self.model, ConvnetModel) else "tokens"

    @property
    def model_sizes(self) -> ModelSizes:
        """Model sizes that a layout must divide."""
        if isinstance(self.model, ConvnetModel):
            return self.model.sizes()
        tokenizer = self.data.prepare.tokenizer if isinstance(self.data, PreparedData) else self.data.tokenizer
        return self.model.sizes(_BYTE_VOCABULARY if tokenizer == "byte" else None)


class ProgramWorkload(SpecModel):
    """An unmodified program that controls its own training and state."""

    entrypoint: Location | None = None
    """Path of a Python file that every node can read. A relative path is relative to `cwd`. Mutually exclusive with
    `module`."""
    module: ModuleName | None = None
    """Module to run as with `python -m`, found in `cwd` or on the nodes' path. Mutually exclusive with `entrypoint`."""
    args: Annotated[list[Value], Field(max_length=4096)] = []
    """Command-line arguments of the program: at most 64 KiB in all."""
    cwd: AbsolutePath | None = None
    """Working directory on every node. Default: the folder of `entrypoint`."""
    role: Annotated[Line, Field(min_length=1, max_length=64)] = "default"
    """Role of the ranks, which they find in `ROLE_NAME`."""
    steps: Steps | None = None
    """Expected number of optimizer steps, for the progress and the remaining time. Optional."""

    @model_validator(mode="after")
    def _check_one_program(self) -> Self:
        if (self.entrypoint is None) == (self.module is None):
            raise PydanticCustomError("script", "set exactly one of entrypoint and module")
        if (size_bytes := sum(len(each.encode()) for each in self.args)) > _MAX_ARGS_BYTES:
            raise PydanticCustomError(
                "args",
                "args can have at most {limit} bytes together, not {size}: put the values into a file",
                {"limit": f"{_MAX_ARGS_BYTES:,}", "size": f"{size_bytes:,}"},
            )
        return self


class ScriptWorkload(ProgramWorkload):
    """An unmodified torchrun program. Each rank is one process with the environment variables that torchrun sets."""

    kind: Literal["script"]
    """Workload type."""


class RayTrainWorkload(ProgramWorkload):
    """An unmodified Ray Train program. `.fit()` trains on the job's ranks without a Ray cluster."""

    kind: Literal["ray_train"]
    """Workload type."""


class FunctionWorkload(SpecModel):
    """A user's training function with a `regroup.Context` argument. Its state survives failures and works with any
    layout."""

    kind: Literal["function"]
    """Workload type."""
    function: FunctionName
    """Function `module:function`, found in the job's `code` or on the nodes' path."""
    data: PreparedData | None = None
    """Records to prepare for the function (`run.records`). Optional: a function can read its own data."""

    @model_validator(mode="after")
    def _check_record_length(self) -> Self:
        if self.data is not None and self.data.prepare.function is None and self.data.prepare.sequence is None:
            raise PydanticCustomError(
                "sequence", "data.prepare.sequence is required: set the number of tokens per record"
            )
        return self


_KINDS = ("builtin", "script", "ray_train", "function")


def _check_kind(value: object) -> object:
    if isinstance(value, dict) and (kind := cast(dict[str, object], value).get("kind")) not in _KINDS:
        got = "" if kind is None else f"; got {kind}"
        raise PydanticCustomError("kind", "kind must be one of {kinds}{got}", {"kinds": ", ".join(_KINDS), "got": got})
    return value


Workload = Annotated[
    BuiltinWorkload | ScriptWorkload | RayTrainWorkload | FunctionWorkload,
    Field(discriminator="kind"),
    BeforeValidator(_check_kind),
]
"""A tagged union by `kind`."""

NOT_FOR_SCRIPTS: Mapping[str, str] = {
    "args": "set the command line in workload.args",
    "layout": "set only layout.dp, the number of ranks",
    "determinism": "the script controls its own determinism",
    "snapshot": "the script manages its own state",
    "checkpoint": "the script saves its own checkpoints",
    "resume_from": "the script loads its own checkpoints",
    "seed": "the script sets its own seeds",
}
"""Spec fields that a script controls itself, with the explanation for the error message."""
_SCRIPT_PHASES = ("forward", "optimizer")
_NOT_SCRIPT_FAULTS = frozenset(
    {
        "kill_saver",
        "fill_disk",
        "break_disk",
        "nan_loss",
        "spike_loss",
        "spike_gradient",
        "flip_bit",
        "flip_snapshot",
        "corrupt_transfer",
        "kill_agent_in_transfer",
    }
)
_FUNCTION_TRAINING_FIELDS = frozenset({"steps", "global_batch", "micro_batch"})


def check_fits(
    workload: BuiltinWorkload | ProgramWorkload | FunctionWorkload, name: str, value: Any, default: Any
) -> None:
    """Check that a field's value applies to the workload.

    Raises:
        PydanticCustomError: the value does not apply; the message names the remedy.
    """
    if isinstance(workload, BuiltinWorkload):
        if name == "training":
            _check_fits_builtin(workload, value)
    elif isinstance(workload, FunctionWorkload):
        _check_fits_function(name, value)
    elif reason := _script_objection(name, value, default):
        raise PydanticCustomError("not_for_script", "does not apply to a script: {reason}", {"reason": reason})


def _check_fits_builtin(workload: BuiltinWorkload, training: Any) -> None:
    if isinstance(workload.model, ConvnetModel):
        if training is None:
            raise PydanticCustomError("missing", "required by the built-in trainer")
        if training.sequence is not None:
            raise PydanticCustomError(
                "sequence", "sequence does not apply to a convnet, whose samples are images: remove it"
            )
    elif training is None or training.sequence is None:
        raise PydanticCustomError("missing", "required by the built-in trainer, with training.sequence")
    elif isinstance(workload.data, PreparedData):
        _check_sequence(workload.data, training.sequence)


def _check_sequence(data: PreparedData, sequence: int) -> None:
    if data.prepare.sequence not in (None, sequence):
        raise PydanticCustomError(
            "sequence",
            "sequence {sequence} differs from workload.data.prepare.sequence {prepared}: remove the latter",
            {"sequence": sequence, "prepared": data.prepare.sequence},
        )


def _check_fits_function(name: str, value: Any) -> None:
    if name == "training" and value is None:
        raise PydanticCustomError("missing", "required by a function: set steps, global_batch and micro_batch")
    if name == "training" and (unused := sorted(value.model_fields_set - _FUNCTION_TRAINING_FIELDS)):
        for field in unused:
            if getattr(value, field) != type(value).model_fields[field].default:
                raise PydanticCustomError(
                    "not_for_function",
                    "{field} does not apply to a function, which controls it: pass the value in args",
                    {"field": field},
                )
    if name == "recovery" and value.non_finite == "skip":
        raise PydanticCustomError(
            "not_for_function",
            "non_finite: skip does not apply to a function: its update is complete when the check runs",
        )
    if name == "faults" and any(fault.at.phase == "backward" for fault in value):
        raise PydanticCustomError(
            "not_for_function", "faults of a function need the phase forward, optimizer, snapshot or checkpoint"
        )


def _script_objection(name: str, value: Any, default: Any) -> str:
    match name:
        case "training":
            return "" if value is None else "the script controls its training; set workload.steps to show progress"
        case "faults":
            unsupported = [
                fault for fault in value if fault.at.phase not in _SCRIPT_PHASES or fault.do in _NOT_SCRIPT_FAULTS
            ]
            phases = " or ".join(_SCRIPT_PHASES)
            return (
                f"its faults need the phase {phases} and cannot change losses, parameters, snapshots or checkpoints"
                if unsupported
                else ""
            )
        case "recovery":
            if value.verify == "restart":
                return "a program can only be checked on its own: use verify: restart_only, or `regroup run --check`"
            fields = ("non_finite", "loss_spike")
            is_set = value.verify_replicas is True or any(getattr(value, f) != getattr(default, f) for f in fields)
            return "remove non_finite, loss_spike and verify_replicas" if is_set else ""
        case "layout":
            return (
                NOT_FOR_SCRIPTS[name] if value.model_dump(exclude={"dp"}) != default.model_dump(exclude={"dp"}) else ""
            )
        case _:
            return NOT_FOR_SCRIPTS[name] if value != default else ""


def requested_steps(spec: Mapping[str, Any]) -> int | None:
    """Return the number of optimizer updates that a spec (plain data) requests; None if it requests none."""
    steps = (spec.get("training") or spec["workload"]).get("steps")
    return None if steps is None else int(steps)
