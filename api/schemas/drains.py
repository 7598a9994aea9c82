"""Wire models of node drains."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regroup.service.spec.types import MIN_DURATION_S, Reason, parse_seconds


class DrainRequest(BaseModel):
    """A request to drain a node."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    deadline_s: Annotated[float, Field(ge=MIN_DURATION_S, le=7 * 86400.0), BeforeValidator(parse_seconds)] = 600.0
    """Time until the node may go away, in seconds or e.g. `15m`."""
    reason: Reason = "on request"
    """Text for people, shown with every job that is relocated."""


class Drain(BaseModel):
    """The drain of a node, and the jobs that are still on it."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    node_id: str
    """Id of the node in Ray."""
    node: str
    """Name of the node."""
    by: str
    """Origin of the drain: `request`, or `ray` if Ray itself drains the node."""
    reason: str
    """Text for people, from the request."""
    requested_at: float | None
    """Time of the request, in Unix seconds; null for a drain by Ray."""
    deadline_at: float | None
    """Time from which the node may be gone, in Unix seconds."""
    jobs: list[str]
    """Ids of the jobs that still use the node; empty when the node is drained."""
    etag: str | None
    """Entity tag of the request: `If-Match` compares it before a change. Null if Ray itself drains the node."""
