"""What a job runs: the tagged union of workloads, and what each is made of."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.data_preparation import WHICH_DATA, AsPrepared, PreparedData
from regroup.service.spec.layout_rules import ModelSizes
from regroup.service.spec.models import FAMILIES, BuiltinModel, ConvnetModel, TransformerModel
from regroup.service.spec.types import AbsolutePath, Positive, SpecModel

_BYTE_VOCABULARY = 257
"""Tokens of the `byte` tokenizer: bytes, and the end of a document."""


class TextData(SpecModel):
    """Text that is turned once, by content hash, into a token file under `storage_uri`."""

    train: Annotated[list[str], Field(min_length=1)]
    """Files, folders, globs or fsspec URIs."""
    validation: list[str] = []
    """Held-out files; what matches here is left out of `train`."""
    tokenizer: str = "byte"
    """`byte`, or path or URI of a `tokenizers` JSON file."""


class BuiltinWorkload(SpecModel):
    """The built-in trainer on the built-in model families."""

    kind: Literal["builtin"]
    """Which workload this is."""
    model: BuiltinModel = TransformerModel()
    data: Annotated[Annotated[TextData, Tag("text")] | AsPrepared, WHICH_DATA]

    @model_validator(mode="after")
    def _reads_what_it_trains_on(self) -> Self:
        makes = isinstance(self.data, PreparedData) and self.data.prepare.function is not None
        if isinstance(self.model, ConvnetModel) and not makes:
            raise PydanticCustomError(
                "data",
                "a convnet reads records of image and label: give data.prepare with a function that makes them",
            )
        return self

    @property
    def sample_kind(self) -> str:
        """What its samples are."""
        return "images" if isinstance(self.model, ConvnetModel) else "tokens"

    @property
    def model_sizes(self) -> ModelSizes:
        """What a layout must divide."""
        if isinstance(self.model, ConvnetModel):
            return self.model.sizes()
        tokenizer = self.data.prepare.tokenizer if isinstance(self.data, PreparedData) else self.data.tokenizer
        return self.model.sizes(_BYTE_VOCABULARY if tokenizer == "byte" else None)


class ProgramWorkload(SpecModel):
    """A program, unmodified, that decides for itself what it computes and keeps."""

    entrypoint: str | None = Field(default=None, min_length=1)
    """Path of a Python file that every node sees; a relative one is below `cwd`. Or give `module`."""
    module: str | None = Field(default=None, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
    """A module to run like `python -m`, found in `cwd` or on the nodes' path. Or give `entrypoint`."""
    args: list[str] = []
    """What follows in `sys.argv`."""
    cwd: AbsolutePath | None = None
    """Folder it runs in, the same on every node; that of `entrypoint` if absent."""
    steps: Positive | None = None
    """Optimizer steps it will take, if known: for progress and the time that is left."""

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.entrypoint is None) == (self.module is None):
            raise PydanticCustomError("script", "give exactly one of entrypoint and module")
        return self


class ScriptWorkload(ProgramWorkload):
    """A program as torchrun runs it, unmodified: one process a rank, told its place by environment variables."""

    kind: Literal["script"]
    """Which workload this is."""


class RayTrainWorkload(ProgramWorkload):
    """A program that calls Ray Train, unmodified: `.fit()` trains on the job's ranks, without a Ray cluster."""

    kind: Literal["ray_train"]
    """Which workload this is."""


class FunctionWorkload(SpecModel):
    """A training function of one's own, handed a `regroup.Context`: its state survives, on any layout."""

    kind: Literal["function"]
    """Which workload this is."""
    function: str = Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*$")
    """`module:function`, found in the job's `code` or on the nodes' path."""
    data: PreparedData | None = None
    """What is prepared for it, for `run.records`; a function may as well read its own."""

    @model_validator(mode="after")
    def _knows_its_records(self) -> Self:
        if self.data is not None and self.data.prepare.function is None and self.data.prepare.sequence is None:
            raise PydanticCustomError("sequence", "data.prepare.sequence is needed: how many tokens is a record?")
        return self


_KINDS = ("builtin", "script", "ray_train", "function")


def _known_kind(value: object) -> object:
    if isinstance(value, dict) and (kind := cast(dict[str, object], value).get("kind")) not in _KINDS:
        raise PydanticCustomError(
            "kind", "kind must be one of {known}: {kind}", {"known": ", ".join(_KINDS), "kind": kind}
        )
    return value


Workload = Annotated[
    BuiltinWorkload | ScriptWorkload | RayTrainWorkload | FunctionWorkload,
    Field(discriminator="kind"),
    BeforeValidator(_known_kind),
]
"""A tagged union by `kind`."""

LEFT_TO_A_SCRIPT: Mapping[str, str] = {
    "args": "its command line is workload.args",
    "layout": "leave out all but layout.dp, its number of ranks",
    "determinism": "it decides that itself",
    "snapshot": "its state is its own",
    "checkpoint": "it saves its own",
    "resume_from": "it loads its own",
    "seed": "it seeds itself",
}
"""Fields of a spec that a script decides itself, and what to say of it."""
_SCRIPT_PHASES = ("forward", "optimizer")
_NOT_OF_A_SCRIPT = frozenset(
    {"kill_saver", "fill_disk", "break_disk", "nan_loss", "spike_loss", "spike_gradient", "flip_bit", "flip_snapshot"}
)
_STEPS_OF_A_FUNCTION = frozenset({"steps", "global_batch", "micro_batch"})


def check_fits(
    workload: BuiltinWorkload | ProgramWorkload | FunctionWorkload, name: str, value: Any, default: Any
) -> None:
    """Refuse a field's value that the workload needs otherwise, or that means nothing to it.

    Raises:
        PydanticCustomError: saying what to do instead.
    """
    if isinstance(workload, BuiltinWorkload):
        if name == "training":
            _check_fits_builtin(workload, value)
    elif isinstance(workload, FunctionWorkload):
        _check_fits_function(name, value)
    elif instead := _instead(name, value, default):
        raise PydanticCustomError("not_of_a_script", "does not apply to a script: {instead}", {"instead": instead})


def _check_fits_builtin(workload: BuiltinWorkload, training: Any) -> None:
    if isinstance(workload.model, ConvnetModel):
        if training is None:
            raise PydanticCustomError("missing", "the built-in trainer needs it")
        if training.sequence is not None:
            raise PydanticCustomError("sequence", "a convnet's samples are images: leave sequence out")
    elif training is None or training.sequence is None:
        raise PydanticCustomError("missing", "the built-in trainer needs it, with its sequence")
    elif isinstance(workload.data, PreparedData):
        _check_sequence(workload.data, training.sequence)


def _check_sequence(data: PreparedData, sequence: int) -> None:
    if data.prepare.sequence not in (None, sequence):
        raise PydanticCustomError(
            "sequence",
            "sequence {sequence} is not that of workload.data.prepare, {prepared}: leave the latter out",
            {"sequence": sequence, "prepared": data.prepare.sequence},
        )


def _check_fits_function(name: str, value: Any) -> None:
    if name == "training" and value is None:
        raise PydanticCustomError("missing", "a function needs its steps, global_batch and micro_batch")
    if name == "training" and (odd := sorted(value.model_fields_set - _STEPS_OF_A_FUNCTION)):
        for field in odd:
            if getattr(value, field) != type(value).model_fields[field].default:
                raise PydanticCustomError(
                    "not_of_a_function",
                    "{field} does not apply to a function, which decides that itself; pass it in args",
                    {"field": field},
                )
    if name == "recovery" and value.non_finite == "skip":
        raise PydanticCustomError(
            "not_of_a_function", "non_finite skip does not apply to a function, which has done its update by then"
        )
    if name == "faults" and any(fault.at.phase == "backward" for fault in value):
        raise PydanticCustomError(
            "not_of_a_function", "faults of a function strike in forward, optimizer, snapshot or checkpoint"
        )


def _instead(name: str, value: Any, default: Any) -> str:
    match name:
        case "training":
            return "" if value is None else "it decides that itself; workload.steps says how many, if known"
        case "faults":
            odd = [fault for fault in value if fault.at.phase not in _SCRIPT_PHASES or fault.do in _NOT_OF_A_SCRIPT]
            where = " or ".join(_SCRIPT_PHASES)
            return f"its faults strike in {where}, and not its numbers, saver or snapshots" if odd else ""
        case "recovery":
            fields = ("non_finite", "loss_spike")
            is_asked = value.verify_replicas is True or any(getattr(value, f) != getattr(default, f) for f in fields)
            return "its numbers are its own: leave non_finite, loss_spike and verify_replicas out" if is_asked else ""
        case "layout":
            return (
                LEFT_TO_A_SCRIPT[name] if value.model_dump(exclude={"dp"}) != default.model_dump(exclude={"dp"}) else ""
            )
        case _:
            return LEFT_TO_A_SCRIPT[name] if value != default else ""


def requested_steps(spec: Mapping[str, Any]) -> int | None:
    """Optimizer updates that a spec, as plain data, asks for; None if nobody knows."""
    steps = (spec.get("training") or spec["workload"]).get("steps")
    return None if steps is None else int(steps)


def without_tag(location: Sequence[str | int]) -> list[str]:
    """Where in a spec an error lies, as the person wrote it: without the tag that chose the workload's model."""
    parts = [str(part) for part in location]
    if parts[:1] == ["workload"] and parts[1:2] and parts[1] in _KINDS:
        del parts[1]
    for part, tags in (("data", ("text", "prepared")), ("model", FAMILIES)):
        if parts[:2] == ["workload", part] and parts[2:3] and parts[2] in tags:
            del parts[2]
    return parts
