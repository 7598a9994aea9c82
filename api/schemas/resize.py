"""Wire models of resizes: the request, and the sizes that a job can have."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout
from regroup.service.spec.types import Degree, Reason


class SizePrediction(Wire):
    """Prediction of the planner for one size."""

    step_s: float
    """Time of a step."""
    time_parts_s: dict[str, float]
    """Parts of the step time, in seconds, for example `matmul`, `attention` and `data`."""
    peak_bytes: float
    """Peak memory of the fullest device."""
    memory_parts_bytes: dict[str, float]
    """Parts of that memory, for example `parameters` and `activations`."""
    capacity_bytes: float
    """Memory of a device."""


class AxisTraffic(Wire):
    """Traffic along one axis of a layout."""

    name: str
    """Name of the axis, for example `tp`."""
    degree: int
    """Number of ranks in a group."""
    wire_bytes: float
    """Bytes that a rank sends to the next rank of its group per step."""


class JobSize(Wire):
    """A legal size of a job."""

    layout: Layout
    """Parallel degrees of the size."""
    ranks: int
    """Number of ranks."""
    expected_step_s: float | None
    """Expected time of a step, in seconds: measured if the job had this size, else predicted, and scaled by the
    error at the present size, or estimated; null if there is no basis."""
    basis: str
    """Origin of that value, for people; empty without one."""
    is_measured: bool
    """True if the job ran with this size."""
    tokens_per_s: float | None
    """Expected tokens per second of all ranks; null if unknown."""
    prediction: SizePrediction | None
    """Prediction of the planner; null if it cannot model the job."""
    axes: list[AxisTraffic]
    """Axes with more than one rank, those of the nearest ranks first; empty if the traffic is unknown."""


class ResizeGap(Wire):
    """Time without steps that a resize causes."""

    seconds: float
    """Expected time."""
    basis: str
    """Origin of that value, for people."""


class JobSizes(Wire):
    """The sizes that a job can have."""

    current: Layout | None
    """Layout of the newest generation; null before the first one."""
    requested: Layout | None
    """Layout of a resize that is pending; null if there is none."""
    sizes: list[JobSize]
    """Legal sizes, the smallest first."""
    gap: ResizeGap
    """Expected time without steps when the job is resized."""
    open_ranks: int | None
    """Number of the job's ranks that fit on the open nodes if they were idle; null if unknown."""
    why_not: str
    """Reason why there are no predictions; empty if there are."""


class SpecSizes(Wire):
    """The sizes that a job of a spec could have."""

    sizes: list[JobSize]
    """Legal sizes, the smallest first. None is measured."""
    open_ranks: int | None
    """Number of its ranks that fit on the open nodes if they were idle; null if unknown."""
    why_not: str
    """Reason why there are no predictions; empty if there are."""


class ResizeRequest(BaseModel):
    """The requested size of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dp: Degree | None = None
    """Data-parallel degree, between `layout.dp.min` and `layout.dp.max` of the spec. Set this or `ranks`."""
    ranks: Degree | None = None
    """Total number of ranks. The planner chooses the degrees; it must be able to model the job."""
    tp: Degree | None = None
    """Tensor-parallel degree; unchanged from the spec if absent. Only the built-in trainer can change it."""
    pp: Degree | None = None
    """Pipeline-parallel degree; unchanged from the spec if absent. Only the built-in trainer can change it."""
    reason: Reason = "resized on request"
    """Text for people, shown with the change."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.dp is None) == (self.ranks is None):
            raise PydanticCustomError("size", "set exactly one of dp and ranks")
        if self.ranks is not None and (self.tp or self.pp):
            raise PydanticCustomError("size", "with ranks the planner chooses tp and pp: omit them, or set dp instead")
        return self
