"""The plan of faults for one job: a pure function of a scenario and a seed, so that a run can be repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

EXTERNAL_FAULTS: Mapping[str, str] = {
    "kill_server": "the control plane is killed and restarted",
    "kill_supervisor": "the job's supervisor is killed",
    "kill_agent": "the agent of a node is killed",
    "kill_node": "all processes of a node are killed at once",
    "freeze_node": "all processes of a node are stopped, with open connections, and resume after the job has recovered",
    "flip_checkpoint": "one byte of the newest checkpoint is changed",
    "truncate_checkpoint": "the largest file of the newest checkpoint is truncated to half its size",
    "delete_shard": "the largest file of the newest checkpoint is removed",
    "cancel": "a person cancels the job",
}
"""Faults that a spec cannot express, because they affect processes or files outside the job."""
NODE_LOSS_FAULTS = frozenset({"kill_node", "freeze_node"})
GENERATION_FAULTS = NODE_LOSS_FAULTS | {"kill_agent"}
"""External faults that each cause an incident."""


@dataclass(frozen=True)
class PlannedFault:
    """One external fault. Faults are injected in order, each after the job has recovered from the previous one."""

    do: str
    after_step: int
    """Number of committed steps after which the fault is injected."""
    node: int = 0
    """Index of the node, in the order of the job's ranks, for faults of one node."""
    while_recovering: bool = False
    """True if the fault is injected during another recovery."""
    saved_step: int = 0
    """Step whose checkpoint must exist before the fault is injected; 0 requires none."""

    def __post_init__(self) -> None:
        if self.do not in EXTERNAL_FAULTS:
            raise ValueError(f"unknown external fault {self.do!r}; expected one of {', '.join(EXTERNAL_FAULTS)}")


@dataclass(frozen=True)
class FaultPlan:
    """All faults of one job."""

    scenario: str
    seed: int
    steps: int
    """Number of steps of the job."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """Faults in the job's spec."""
    external_faults: tuple[PlannedFault, ...] = ()
    spec_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of its spec in addition to those of the control run."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data. Equal plans return equal data."""
        return asdict(self)


def spec_fault(do: str, rank: int, step: int, phase: str = "forward", **more: Any) -> dict[str, Any]:
    """Return a fault in the form of a spec."""
    return {"at": {"rank": rank, "step": step, "phase": phase}, "do": do, **more}


def spaced_steps(first: int, every: int, count: int, draw: Random) -> list[int]:
    """Return `count` steps, `every` steps apart, each shifted at random by less than a third of that distance."""
    return [first + number * every + draw.randrange(max(1, every // 3)) for number in range(count)]


MIX: Mapping[str, float] = {"rank_exit": 0.70, "hang": 0.10, "node": 0.05, "supervisor": 0.075, "server": 0.075}
"""Cause → share of the faults, for the published figures."""
_PHASES = ("forward", "backward", "optimizer")


def plan_soak(
    seed: int, *, steps: int, every: int, ranks: int, nodes: int, mix: Mapping[str, float] = MIX
) -> FaultPlan:
    """Plan a long run: about every `every` steps a cause drawn from `mix`, at a random rank, phase and node.

    Raises:
        ValueError: a cause of the mix is unknown, a share is negative, or all shares are 0.
    """
    if unknown := sorted(mix.keys() - MIX.keys()):
        raise ValueError(f"unknown cause of a soak {unknown[0]!r}; expected one of {', '.join(MIX)}")
    if not mix or min(mix.values()) < 0 or not sum(mix.values()) > 0:
        raise ValueError(f"the shares of a mix must be at least 0, and one must be above 0: {dict(mix)}")
    draw = Random(f"soak {seed}")
    faults: list[Mapping[str, Any]] = []
    external: list[PlannedFault] = []
    for at in spaced_steps(every, every, max(0, steps // every - 1), draw):
        cause = draw.choices(list(mix), list(mix.values()))[0]
        rank, phase, node, silent = draw.randrange(ranks), draw.choice(_PHASES), draw.randrange(nodes), draw.random()
        match cause:
            case "rank_exit":
                faults.append(spec_fault("sigkill", rank, at, phase))
            case "hang":
                faults.append(spec_fault("sigstop", rank, at, phase))
            case "node":
                external.append(PlannedFault("freeze_node" if silent < 0.5 else "kill_node", at, node))
            case "supervisor":
                external.append(PlannedFault("kill_supervisor", at))
            case _:
                external.append(PlannedFault("kill_server", at))
    return FaultPlan("soak", seed, steps, tuple(faults), tuple(external))


def parse_mix(shares: Sequence[str]) -> dict[str, float]:
    """Parse shares of the form `CAUSE=SHARE`.

    Raises:
        ValueError: a share is invalid; the message contains it.
    """
    found: dict[str, float] = {}
    for share in shares:
        cause, _, number = share.partition("=")
        try:
            found[cause] = float(number)
        except ValueError as error:
            raise ValueError(f"invalid share {share!r}; use CAUSE=NUMBER, e.g. rank_exit=0.7") from error
    return found
