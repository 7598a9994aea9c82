"""Wire model of a resize request."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Degree, Reason


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
