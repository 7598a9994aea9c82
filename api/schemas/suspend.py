"""Wire model of a suspend request."""

from pydantic import BaseModel, ConfigDict

from regroup.service.spec.types import Reason


class SuspendRequest(BaseModel):
    """A request to suspend a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason = "on request"
    """Text for people, shown with the job."""
