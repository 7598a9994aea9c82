"""Explanation of a job's placement, without numbers that have no basis. Pure."""

import re
from dataclasses import dataclass, replace

from regroup.service.policy.placement.communication_cost import AxisCost
from regroup.service.policy.placement.demand import PlacementChoice, RejectedPlacement
from regroup.service.policy.placement.traffic import has_work_figures
from regroup.service.spec.job import JobSpec

_SHARE = re.compile(r"\d+% (more communication)")


@dataclass(frozen=True)
class PlacementExplanation:
    """A placement decision as people see it."""

    inside: str
    """Smallest domain that contains all ranks."""
    communication_s: float | None
    """Estimated communication time per step; None if nothing is known about the program's communication."""
    axes: tuple[AxisCost, ...]
    """Cost of each axis; empty if nothing is known about the program's communication."""
    broken: int
    """Change in the number of free devices on partly used nodes."""
    rejected: tuple[RejectedPlacement, ...]
    probe_job_id: str | None
    """Probe that measured the links; None if the times are estimates from a table."""


def explain_placement(choice: PlacementChoice, spec: JobSpec, probe_job_id: str | None) -> PlacementExplanation:
    """Return the explanation of a decision.

    The placement of a script or function assumes a model of a billion parameters, to compare places. Its times and
    ratios say nothing about the program, so they are left out.

    Args:
        choice: the decision.
        spec: the job's spec.
        probe_job_id: probe that measured the links of the job's nodes, or None.
    """
    has_figures = has_work_figures(spec)
    rejected = choice.rejected
    if not has_figures:
        rejected = tuple(replace(each, why=_SHARE.sub(r"\1", each.why)) for each in rejected)
    return PlacementExplanation(
        choice.inside,
        choice.communication_s if has_figures else None,
        choice.axes if has_figures else (),
        choice.broken,
        rejected,
        probe_job_id,
    )
