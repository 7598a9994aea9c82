"""Wire models of node drains."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from regroup.service.spec.types import Duration


class DrainRequest(BaseModel):
    """Have a node empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deadline_s: Annotated[Duration, Field(le=7 * 86400.0)] = 600.0
    """Within so many seconds, or e.g. `15m`; after that it may be gone."""
    reason: str = Field("on request", min_length=1, max_length=200)
    """For people: shown with every job that moves."""


class Drain(BaseModel):
    """A node that is about to leave, and who is still there."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    node_id: str
    node: str
    """Its name."""
    by: str
    """`request`, or `ray`: the cluster itself has said so."""
    reason: str
    requested_at: float | None
    deadline_at: float | None
    """Unix seconds; it may be gone from then on."""
    jobs: list[str]
    """Ids of jobs that still hold a part of it; it is empty when there are none."""
