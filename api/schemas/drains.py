"""Wire models of node drains."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regroup.service.spec.types import MIN_DURATION_S, Reason, parse_seconds

MAX_ALSO = 4096
NodeReference = Annotated[str, Field(min_length=1, max_length=256)]


class DrainRequest(BaseModel):
    """A request to drain a node."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    deadline_s: Annotated[float, Field(ge=MIN_DURATION_S, le=7 * 86400.0), BeforeValidator(parse_seconds)] = 600.0
    """Time until the node may go away, in seconds or e.g. `15m`."""
    reason: Reason = "on request"
    """Text for people, shown with every job that is relocated."""
    also: Annotated[tuple[NodeReference, ...], Field(max_length=MAX_ALSO)] = ()
    """Names or ids of other nodes that leave at the same time, for example those of a rack. This request does not drain
    them: `moves` covers their jobs too, and predicts no move to them."""


class NodeMove(BaseModel):
    """The ranks of a job on one node, and the node that gets them."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    source: str
    """Name of the node that leaves."""
    target: str
    """Name of the node that replaces it."""
    ranks: int
    """Number of ranks that move."""


class JobMove(BaseModel):
    """The predicted effect on a job when its nodes leave."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    job_id: str
    """Id of the job."""
    name: str
    """Name of the job; its id if you do not see its project."""
    effect: Literal["moves", "shrinks_or_waits", "waits"]
    """`moves`: other nodes take its ranks. `waits`: it saves its last step and queues. `shrinks_or_waits`: it continues
    with fewer ranks if the rest of its nodes suffice, and queues otherwise."""
    nodes: tuple[NodeMove, ...]
    """Moves of its nodes; empty unless the effect is `moves`."""
    why: str
    """Reason why no other nodes take its ranks, for people; empty if it moves."""


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
    moves: tuple[JobMove, ...] = ()
    """The effect on the jobs on the node and on those of `also`: a prediction with the placement of the controller
    and the capacity of now. If capacity is scarce, another job may get the last free node."""
