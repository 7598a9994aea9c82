"""What is injected into one job, and when: a pure function of a scenario and a seed, so that a run can be repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

EXTERNAL_FAULTS: Mapping[str, str] = {
    "kill_server": "the control plane is killed, and started again",
    "kill_supervisor": "the job's supervisor is killed",
    "kill_agent": "the agent of a node is killed",
    "kill_node": "everything on a node is killed at once",
    "freeze_node": "everything on a node is stopped, with its connections open, and goes on once the job has recovered",
    "flip_checkpoint": "one byte of the newest checkpoint is changed",
    "truncate_checkpoint": "the largest file of the newest checkpoint is cut in half",
    "delete_shard": "the largest file of the newest checkpoint is removed",
    "cancel": "a person cancels the job",
}
"""Strikes that a spec cannot express, because they fall on what is beside the job."""
NODE_LOSS_FAULTS = frozenset({"kill_node", "freeze_node"})
GENERATION_FAULTS = NODE_LOSS_FAULTS | {"kill_agent"}
"""External faults that each cause an incident of the job."""


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
    """All that is injected into one job."""

    scenario: str
    seed: int
    steps: int
    """Of the job."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """As its spec has them."""
    external_faults: tuple[PlannedFault, ...] = ()
    spec_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its spec, beside those of the control run."""

    def to_json(self) -> dict[str, Any]:
        """Plain data: equal for equal plans."""
        return asdict(self)


def spec_fault(do: str, rank: int, step: int, phase: str = "forward", **more: Any) -> dict[str, Any]:
    """A fault as a spec writes it."""
    return {"at": {"rank": rank, "step": step, "phase": phase}, "do": do, **more}


def spaced_steps(first: int, every: int, count: int, draw: Random) -> list[int]:
    """`count` steps, `every` apart and each shifted by less than a third of that."""
    return [first + number * every + draw.randrange(max(1, every // 3)) for number in range(count)]


MIX: Mapping[str, float] = {"rank_exit": 0.70, "hang": 0.10, "node": 0.05, "supervisor": 0.075, "server": 0.075}
"""The mix of the figures: shares of causes."""
_PHASES = ("forward", "backward", "optimizer")


def plan_soak(
    seed: int, *, steps: int, every: int, ranks: int, nodes: int, mix: Mapping[str, float] = MIX
) -> FaultPlan:
    """A plan for a long run: a cause drawn from `mix` about every `every` steps, of a random rank, phase and node.

    Raises:
        ValueError: a cause of the mix is not known, or its shares are not positive.
    """
    if unknown := sorted(mix.keys() - MIX.keys()):
        raise ValueError(f"no cause of a soak is called {unknown[0]!r}; there are {', '.join(MIX)}")
    if not mix or min(mix.values()) < 0 or not sum(mix.values()) > 0:
        raise ValueError(f"the shares of a mix are numbers above 0: {dict(mix)}")
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
    """`CAUSE=SHARE` as typed.

    Raises:
        ValueError: saying what is wrong with which.
    """
    found: dict[str, float] = {}
    for share in shares:
        cause, _, number = share.partition("=")
        try:
            found[cause] = float(number)
        except ValueError as error:
            raise ValueError(f"a share is written CAUSE=NUMBER, e.g. rank_exit=0.7: {share!r}") from error
    return found
