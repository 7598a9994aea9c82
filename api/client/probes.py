"""What the client asks of measured values."""

import uuid
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from pydantic import BaseModel

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.probes import Probe, ProbeList

T = TypeVar("T", bound=BaseModel)


class ProbeCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    def probe(self, **request: Any) -> Job:
        """Submit a job that measures the cluster: the fields of `service.probes.ProbeRequest` as keywords.

        Raises:
            ApiError: one is on its way, or no open node has such a device.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._call(Job, "POST", "/v1/probes", body=request, headers=headers)

    def probes(self) -> list[Probe]:
        """The newest result of each kind of device."""
        return self._call(ProbeList, "GET", "/v1/probes").probes
