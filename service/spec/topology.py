"""Topology section of a job spec: constraints on the place of a job in the cluster."""

from typing import Literal, Self, TypedDict

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.topology import Level
from regroup.service.spec.types import SpecModel

_Domain = Literal["zone", "block", "rack", "gpu_domain", "node"]


class TopologySpec(SpecModel):
    """Topology constraints. Without constraints, a job is placed where its predicted communication takes the least
    time."""

    required: _Domain | None = None
    """Level of one domain that must contain all ranks. The job waits until such a domain has capacity."""
    preferred: _Domain | None = None
    """Level of which the job should use as few domains as possible, even if communication is slower."""
    tp_within: Literal["node", "gpu_domain"] = "node"
    """Domain that a tensor-parallel group never leaves."""
    spread: _Domain | None = None
    """Level at which at most half of the job's nodes may share one domain. Each node's mirror is then in another
    domain."""

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        levels = list(Level)
        if self.required and self.spread and levels.index(Level(self.spread)) <= levels.index(Level(self.required)):
            raise PydanticCustomError(
                "topology",
                "topology.spread must be a lower level than topology.required: required={required}, spread={spread}",
                {"required": self.required, "spread": self.spread},
            )
        return self

    def demand_fields(self) -> "DemandFields":
        """Return the constraints as fields of a placement demand."""
        return {
            "segment_within": Level(self.tp_within),
            "required": Level(self.required) if self.required else None,
            "preferred": Level(self.preferred) if self.preferred else None,
            "spread": Level(self.spread) if self.spread else None,
        }


class DemandFields(TypedDict):
    """Fields of a placement demand."""

    segment_within: Level
    required: Level | None
    preferred: Level | None
    spread: Level | None
