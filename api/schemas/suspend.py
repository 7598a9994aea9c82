"""Wire model of a suspend request."""

from pydantic import BaseModel, ConfigDict, Field

from regroup.service.spec.types import Line


class SuspendRequest(BaseModel):
    """A request to suspend a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Line = Field(default="on request", min_length=1)
    """Text for people, shown with the job."""
