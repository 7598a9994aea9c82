"""What one rank of a job holds."""

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Bytes, LabelValue, Positive, SpecModel


class Resources(SpecModel):
    """What one rank holds."""

    device: Literal["cpu", "cuda"] = "cpu"
    """`cpu` trains over gloo, `cuda` over NCCL."""
    cpus: Positive = 1
    """CPU cores, also the number of threads of a rank."""
    memory: Bytes | None = None
    """Host memory to reserve; not reserved if absent."""
    accelerator: LabelValue | None = None
    """GPUs that its nodes must have, as their label `ray.io/accelerator-type` names them, e.g. `H100`; any if
    absent."""

    @model_validator(mode="after")
    def _accelerators_are_gpus(self) -> Self:
        if self.accelerator is not None and self.device != "cuda":
            raise PydanticCustomError(
                "accelerator",
                "accelerator names GPUs, and device is {device}: say device: cuda, or leave accelerator out",
                {"device": self.device},
            )
        return self
