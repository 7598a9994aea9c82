"""The part of a spec that says where in the cluster a job may be."""

from typing import Literal, Self, TypedDict

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.topology import Level
from regroup.service.spec.types import SpecModel

_Domain = Literal["zone", "block", "rack", "gpu_domain", "node"]


class TopologySpec(SpecModel):
    """Domains of the cluster that the job keeps to; by itself it is placed where its ranks talk least."""

    required: _Domain | None = None
    """All ranks in one domain of this level, or the job waits."""
    preferred: _Domain | None = None
    """As few domains of this level as can be, even if ranks would talk less elsewhere."""
    tp_within: Literal["node", "gpu_domain"] = "node"
    """What a tensor-parallel group never leaves."""
    spread: _Domain | None = None
    """At most half of the job's nodes in one domain of this level: then each node's mirror is in another one."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        levels = list(Level)
        if self.required and self.spread and levels.index(Level(self.spread)) <= levels.index(Level(self.required)):
            raise PydanticCustomError(
                "topology",
                "topology.spread must be a smaller level than topology.required, else both cannot hold: "
                "required={required}, spread={spread}",
                {"required": self.required, "spread": self.spread},
            )
        return self

    def within(self) -> "Within":
        """As a demand has it."""
        return {
            "segment_within": Level(self.tp_within),
            "required": Level(self.required) if self.required else None,
            "preferred": Level(self.preferred) if self.preferred else None,
            "spread": Level(self.spread) if self.spread else None,
        }


class Within(TypedDict):
    """Fields of a demand."""

    segment_within: Level
    required: Level | None
    preferred: Level | None
    spread: Level | None
