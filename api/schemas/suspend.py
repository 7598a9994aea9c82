"""Wire model of a suspend request."""

from pydantic import BaseModel, ConfigDict, Field


class SuspendRequest(BaseModel):
    """A request to suspend a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(default="on request", min_length=1, max_length=200)
    """Text for people, shown with the job."""
