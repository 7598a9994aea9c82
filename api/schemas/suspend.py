"""Wire model of a suspend request."""

from pydantic import BaseModel, ConfigDict, Field


class SuspendRequest(BaseModel):
    """Have a job hold nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(default="on request", min_length=1, max_length=200)
    """For people: shown with the job."""
