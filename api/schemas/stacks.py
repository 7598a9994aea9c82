"""Wire models of `/v1/jobs/{job}/stacks`."""

from pydantic import BaseModel, ConfigDict

from regroup.service.ports import cluster


class RankStack(BaseModel):
    """The stacks of all threads of a rank."""

    model_config = ConfigDict(frozen=True)

    rank: int
    """Number of the rank."""
    node: str
    """Name of the rank's node."""
    pid: int
    """Id of its process on its node."""
    step: int | None
    """Current step of the rank."""
    phase: str | None
    """Phase of that step, for example `backward`."""
    text: str
    """Python stacks, newest call first; or the reason why the rank does not respond."""


class Stacks(BaseModel):
    """Current stacks of a job's ranks, in rank order."""

    model_config = ConfigDict(frozen=True)

    ranks: list[RankStack]
    """Stacks of each rank."""


def rank_stack(rank: int, found: cluster.RankStack) -> RankStack:
    """Convert the stacks of a rank from its agent's answer."""
    step, phase = found.place or (None, None)
    return RankStack(rank=rank, node=found.node, pid=found.pid, step=step, phase=phase, text=found.text)
