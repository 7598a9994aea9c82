"""Layout section of a job spec: the parallel degrees and how they may change."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.layout import Layout
from regroup.service.spec.types import MAX_RANKS, Degree, Flag, Integer, SpecModel, parse_off, read_whole_number

_ONE_STAGE_SCHEDULES = ("gpipe", "1f1b")


class DataParallel(SpecModel):
    """Smallest, target and largest data-parallel degree."""

    min: Degree
    """Smallest degree at which the job may run."""
    target: Degree
    """Requested degree."""
    max: Degree
    """Largest degree to which the job may grow."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        _check_ordered("dp", self.min, self.target, self.max)
        return self


def _check_ordered(kind: Literal["dp", "ranks"], minimum: int, target: int, maximum: int) -> None:
    if not minimum <= target <= maximum:
        values = {"min": minimum, "target": target, "max": maximum}
        raise PydanticCustomError(
            kind, "must satisfy min <= target <= max: min={min}, target={target}, max={max}", values
        )


def _expand_range(given: object) -> object:
    value = read_whole_number(given)
    if isinstance(value, bool) or not isinstance(value, int | Mapping | SpecModel):
        raise PydanticCustomError("range", "must be an integer, or a mapping with min, target and max")
    return {"min": value, "target": value, "max": value} if isinstance(value, int) else cast(object, value)


class Ranks(SpecModel):
    """Smallest, target and largest number of ranks."""

    min: Degree
    """Smallest number of ranks with which the job may run."""
    target: Degree
    """Requested number of ranks."""
    max: Degree
    """Largest number of ranks to which the job may grow."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        _check_ordered("ranks", self.min, self.target, self.max)
        return self


class AutoLayout(SpecModel):
    """Automatic layout, for the built-in transformer. When the job is submitted, the planner chooses the fields of
    `layout` that the spec does not set, and `training.micro_batch` and `training.activation_checkpointing`."""

    ranks: Annotated[Ranks, BeforeValidator(_expand_range)] | Literal["all"] = "all"
    """Number of ranks: an integer, {min, target, max}, or `all`: as many as the cluster can hold, and fewer while other
    jobs need the devices."""
    refine: Annotated[Literal["off", "measure"], BeforeValidator(parse_off)] = "off"
    """`measure`: while the job runs, try the layouts with the fastest predictions for a few steps each, and keep the
    fastest. No step is lost or repeated. `off`: keep the predicted layout."""


_ALLOWED_WITH_AUTO = frozenset(
    {"auto", "data_parallel", "tp", "sequence_parallel", "pp", "schedule", "prefetch", "bucket_mib"}
)
"""Layout fields that can be set together with `auto`: the planner honours them or does not depend on them."""


def expand_auto(value: object) -> object:
    """Expand `layout: auto` to `layout: {auto: {}}`."""
    if isinstance(value, str) and value != "auto":
        raise PydanticCustomError("layout", "must be 'auto' or a mapping of fields")
    return {"auto": {}} if value == "auto" else value


class LayoutSpec(SpecModel):
    """The parallel layout and its allowed range, or `auto`. The world size is at most 131072."""

    auto: AutoLayout | None = None
    """If present, the planner chooses the layout. Other layout fields keep the values set here."""
    dp: Annotated[DataParallel, BeforeValidator(_expand_range)] = DataParallel(min=1, target=1, max=1)
    """Data-parallel degree: an integer or {min, target, max}."""
    data_parallel: Literal["fsdp", "zero2", "zero1", "ddp"] = "fsdp"
    """Kind of data parallelism. `ddp` replicates everything. `zero1` shards the optimizer state, `zero2` also the
    gradients, `fsdp` also the parameters."""
    dp_shard: Degree | None = None
    """Number of data ranks over which one copy of the parameters is sharded; the groups replicate it (HSDP). Default:
    all data ranks."""
    reshard_after_forward: Flag | Annotated[Integer, Field(ge=2, le=MAX_RANKS)] = True
    """For fsdp: true gathers the parameters again in backward, false keeps them gathered, an integer reshards them over
    that many ranks."""
    prefetch: Annotated[Integer, Field(ge=1, le=8)] = 1
    """For fsdp and zero2: number of blocks whose parameters are gathered ahead of the computing block."""
    offload: Flag = False
    """For fsdp and zero2: keep shards, gradients and optimizer state in host memory."""
    bucket_mib: Annotated[Integer, Field(ge=1, le=16_384)] = 25
    """For ddp and zero1: size in MiB of the gradient buckets that are reduced during backward."""
    find_unused_parameters: Flag = False
    """For ddp and zero1: search each forward for parameters that it does not use. Needed by models that skip a part in
    some steps. Adds a cost to every step."""
    tp: Degree = 1
    """Tensor-parallel degree."""
    sequence_parallel: Flag = True
    """With tp: each rank holds a part of the sequence between tensor-parallel layers."""
    async_tp: Flag = False
    """With tp: overlap communication with matrix multiplications. Rejected until it is verified on a GPU."""
    cp: Degree = 1
    """Context-parallel degree."""
    pp: Degree = 1
    """Pipeline-parallel degree."""
    schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv"] = "1f1b"
    """Pipeline schedule: the order of forwards and backwards, and the number of stages per rank."""

    @model_validator(mode="after")
    def _check_auto(self) -> Self:
        if self.auto is not None and (unused := sorted(self.model_fields_set - _ALLOWED_WITH_AUTO)):
            reason = "set layout.auto.ranks instead" if unused[0] == "dp" else "the planner does not consider it"
            raise PydanticCustomError(
                "auto", "remove {field}, or do not use layout auto: {reason}", {"field": unused[0], "reason": reason}
            )
        return self

    @model_validator(mode="after")
    def _check_world_size(self) -> Self:
        if (largest := self.dp.max * self.cp * self.tp * self.pp) > MAX_RANKS:
            raise PydanticCustomError(
                "world_size",
                "a job can have at most {limit} ranks: dp.max * cp * tp * pp is {size}",
                {"limit": f"{MAX_RANKS:,}", "size": f"{largest:,}"},
            )
        return self

    def layout_at(self, dp: int) -> Layout:
        """Return the layout at data-parallel degree `dp`."""
        split = {"cp": self.cp, "tp": self.tp, "pp": self.pp}
        if self.data_parallel in ("ddp", "zero1"):
            return Layout(dp_replicate=dp, **split)
        shard = self.dp_shard or dp
        return Layout(dp_replicate=dp // shard, dp_shard=shard, **split)

    @property
    def stages(self) -> int:
        """Number of stages of the whole pipeline."""
        return self.pp if self.pp == 1 or self.schedule in _ONE_STAGE_SCHEDULES else 2 * self.pp

    def strategy(self) -> dict[str, Any]:
        """Return the settings that ranks need in addition to the degrees."""
        fields = {
            "reshard_after_forward", "prefetch", "offload", "bucket_mib", "find_unused_parameters", "sequence_parallel",
            "schedule",
        }  # fmt: skip
        return self.model_dump(mode="json", include=fields)
