"""The part of a spec that says how a job is spread over ranks."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.layout import Layout
from regroup.service.spec.types import Positive, SpecModel, parse_off

_ONE_STAGE = ("gpipe", "1f1b")


class DataParallel(SpecModel):
    """Smallest, wanted and largest data-parallel degree."""

    min: Positive
    """Smallest degree the job may run at."""
    target: Positive
    """Degree it asks for."""
    max: Positive
    """Largest degree it may grow to."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _refuse_unordered("dp", self.min, self.target, self.max)
        return self


def _refuse_unordered(kind: Literal["dp", "ranks"], least: int, target: int, most: int) -> None:
    if not least <= target <= most:
        values = {"min": least, "target": target, "max": most}
        raise PydanticCustomError(kind, "needs min <= target <= max: min={min}, target={target}, max={max}", values)


def _data_parallel(value: object) -> object:
    return {"min": value, "target": value, "max": value} if isinstance(value, int) else value


class Ranks(SpecModel):
    """Smallest, wanted and largest number of ranks."""

    min: Positive
    """Fewest ranks the job may run with."""
    target: Positive
    """Ranks it asks for."""
    max: Positive
    """Most it may grow to."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _refuse_unordered("ranks", self.min, self.target, self.max)
        return self


class AutoLayout(SpecModel):
    """The planner chooses, when the job is submitted, whatever of `layout` the spec leaves open, and of `training`
    `micro_batch` and `activation_checkpointing`. Of the built-in transformer."""

    ranks: Annotated[Ranks, BeforeValidator(_data_parallel)] | Literal["all"] = "all"
    """A number, {min, target, max}, or `all`: as many as the cluster's nodes hold, and fewer where they are needed
    elsewhere."""
    refine: Annotated[Literal["off", "measure"], BeforeValidator(parse_off)] = "off"
    """`measure`: when it runs, the ways to split its ranks that are predicted to be fastest are tried for a few steps
    each, and the fastest is kept. No step is lost or done twice by that."""


_MAY_BE_GIVEN = frozenset(
    {"auto", "data_parallel", "tp", "sequence_parallel", "pp", "schedule", "prefetch", "bucket_mib"}
)
"""Of a layout that is chosen: what a plan can keep to, or is none of its matter."""


def expand_auto(value: object) -> object:
    """`layout: auto` is short for `layout: {auto: {}}`."""
    return {"auto": {}} if value == "auto" else value


class LayoutSpec(SpecModel):
    """The parallel layout and the range in which it may move; or `auto`."""

    auto: AutoLayout | None = None
    """Present: the planner chooses. What else is given here stays as given."""
    dp: Annotated[DataParallel, BeforeValidator(_data_parallel)] = DataParallel(min=1, target=1, max=1)
    """A number, or {min, target, max}."""
    data_parallel: Literal["fsdp", "zero2", "zero1", "ddp"] = "fsdp"
    """`ddp` replicates all; `zero1` shards the optimizer, `zero2` gradients too, `fsdp` parameters too."""
    dp_shard: Positive | None = None
    """One copy of the parameters on so many data ranks, replicated between groups of them (HSDP); all if absent."""
    reshard_after_forward: bool | Annotated[int, Field(gt=1)] = True
    """Of fsdp: gather again in backward; false holds what was gathered, a number spreads it over so many ranks."""
    prefetch: Annotated[int, Field(ge=1, le=8)] = 1
    """Of fsdp and zero2: parameters of so many blocks are gathered ahead of the one that computes."""
    offload: bool = False
    """Of fsdp and zero2: shards, their gradients and the optimizer live in host memory."""
    bucket_mib: Positive = 25
    """Of ddp and zero1: gradients are summed in buckets of this size, while the backward goes on."""
    find_unused_parameters: bool = False
    """Of ddp and zero1: find in each forward what of the model it does not use; a model that leaves a part out at times
    needs it, and every step pays for it."""
    tp: Positive = 1
    """Tensor-parallel degree."""
    sequence_parallel: bool = True
    """With tp: between split layers each rank holds a part of the sequence."""
    async_tp: bool = False
    """With tp: hide its communication behind products. Refused until it is proven on a GPU."""
    cp: Positive = 1
    """Context-parallel degree."""
    pp: Positive = 1
    """Pipeline-parallel degree."""
    schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv"] = "1f1b"
    """Of a pipeline: order of forwards and backwards, and stages on a rank."""

    @model_validator(mode="after")
    def _leaves_open(self) -> Self:
        if self.auto is not None and (odd := sorted(self.model_fields_set - _MAY_BE_GIVEN)):
            instead = "layout.auto.ranks says how many" if odd[0] == "dp" else "the planner does not weigh it"
            raise PydanticCustomError(
                "auto", "leave {field} out where the layout is chosen: {instead}", {"field": odd[0], "instead": instead}
            )
        return self

    def layout_at(self, dp: int) -> Layout:
        """The layout at data-parallel degree `dp`."""
        split = {"cp": self.cp, "tp": self.tp, "pp": self.pp}
        if self.data_parallel in ("ddp", "zero1"):
            return Layout(dp_replicate=dp, **split)
        shard = self.dp_shard or dp
        return Layout(dp_replicate=dp // shard, dp_shard=shard, **split)

    @property
    def stages(self) -> int:
        """Of the whole pipeline."""
        return self.pp if self.pp == 1 or self.schedule in _ONE_STAGE else 2 * self.pp

    @property
    def legal_dp_degrees(self) -> tuple[int, ...]:
        """Data-parallel degrees from the smallest to the largest whose ranks share copies evenly."""
        every = self.dp_shard or 1
        return tuple(dp for dp in range(self.dp.min, self.dp.max + 1) if dp % every == 0)

    def strategy(self) -> dict[str, Any]:
        """What ranks need to know beside the degrees."""
        fields = {
            "reshard_after_forward", "prefetch", "offload", "bucket_mib", "find_unused_parameters", "sequence_parallel",
            "schedule",
        }  # fmt: skip
        return self.model_dump(mode="json", include=fields)
