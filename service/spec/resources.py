"""Resources section of a job spec: devices, cores and memory per rank."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Bytes, Integer, LabelValue, Name, SpecModel

Cores = Annotated[Integer, Field(ge=1, le=4096)]
"""CPU cores of a rank."""


class Resources(SpecModel):
    """Resources of one rank."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Device type. `cpu` trains over gloo, `cuda` over NCCL."""
    cpus: Cores = 1
    """Number of CPU cores, and of threads, per rank."""
    memory: Bytes | None = None
    """Host memory to reserve per rank. Default: no reservation."""
    accelerator: LabelValue | None = None
    """GPU type that the nodes must have, as named by the node label `ray.io/accelerator-type`, for example `H100`.
    Default: any."""

    cluster: Name | None = None
    """Name of the cluster that runs the job; `regroup clusters` lists them. Default: the default cluster of the
    server."""

    @model_validator(mode="after")
    def _check_accelerator(self) -> Self:
        if self.accelerator is not None and self.device != "cuda":
            raise PydanticCustomError(
                "accelerator",
                "accelerator needs device: cuda, but device is {device}: set device: cuda, or remove accelerator",
                {"device": self.device},
            )
        return self
