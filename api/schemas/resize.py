"""Wire model of a resize request."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Positive


class ResizeRequest(BaseModel):
    """The size that a job is to go on at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dp: Positive | None = None
    """Data-parallel degree, between `layout.dp.min` and `layout.dp.max` of the spec. Or give `ranks`."""
    ranks: Positive | None = None
    """So many of them in all: the planner says how they are split, of a job that it can describe."""
    tp: Positive | None = None
    """Tensor-parallel degree; that of the spec if absent. Other than that for the built-in trainer only."""
    pp: Positive | None = None
    """Likewise, of the pipeline."""
    reason: str = Field("resized on request", min_length=1, max_length=200)
    """For people: shown with the change."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.dp is None) == (self.ranks is None):
            raise PydanticCustomError("size", "set exactly one of dp and ranks")
        if self.ranks is not None and (self.tp or self.pp):
            raise PydanticCustomError("size", "with ranks the planner chooses tp and pp: leave them out, or give dp")
        return self
