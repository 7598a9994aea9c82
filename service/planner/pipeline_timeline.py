"""Timeline of a pipeline: start and end of each micro-batch on each stage. Pure."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Slot:
    """One micro-batch's forward or backward on one stage."""

    stage: int
    micro_batch: int
    kind: Literal["forward", "backward"]
    start_s: float
    end_s: float


def timeline(
    stages: int, micro_batches: int, schedule: Literal["gpipe", "1f1b"], forward_s: float, backward_s: float
) -> list[Slot]:
    """Return the work of all stages. Each part starts as soon as its stage and the neighbouring stage are ready.

    1F1B starts with stages - 1 - stage forwards, then alternates (Narayanan et al. 2021). GPipe runs all forwards
    first.
    """
    orders = [_order(stages, stage, micro_batches, schedule) for stage in range(stages)]
    done: dict[tuple[int, int, str], float] = {}
    free, at = [0.0] * stages, [0] * stages
    slots: list[Slot] = []
    while any(at[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                number, kind = orders[stage][at[stage]]
                before = _before(stage, stages, number, kind)
                if before is not None and before not in done:
                    break
                start = max(free[stage], done[before] if before else 0.0)
                end = start + (forward_s if kind == "forward" else backward_s)
                done[(stage, number, kind)] = free[stage] = end
                slots.append(Slot(stage, number, kind, start, end))
                at[stage] += 1
    return slots


def _order(
    stages: int, stage: int, count: int, schedule: Literal["gpipe", "1f1b"]
) -> list[tuple[int, Literal["forward", "backward"]]]:
    ahead = count if schedule == "gpipe" else min(stages - stage, count)
    order: list[tuple[int, Literal["forward", "backward"]]] = [(number, "forward") for number in range(ahead)]
    for number in range(count):
        order.append((number, "backward"))
        if ahead + number < count:
            order.append((ahead + number, "forward"))
    return order


def _before(stage: int, stages: int, number: int, kind: str) -> tuple[int, int, str] | None:
    if kind == "forward":
        return (stage - 1, number, "forward") if stage else None
    return (stage + 1, number, "backward") if stage < stages - 1 else (stage, number, "forward")
