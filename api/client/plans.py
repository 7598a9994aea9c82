"""What the client asks of the planner."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from pydantic import BaseModel

from regroup.api.schemas.job_plan import JobPlan
from regroup.api.schemas.plans import PlanReport

T = TypeVar("T", bound=BaseModel)


class PlanCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    def plan(self, **question: Any) -> PlanReport:
        """The fastest layouts of a model on so many devices: the fields of `service.plans.PlanRequest` as keywords.

        Raises:
            ApiError: the question makes no sense, or nothing fits; it names what binds.
        """
        return self._call(PlanReport, "POST", "/v1/plans", body=question)

    def job_plan(self, job: str, *, project: str = "default") -> JobPlan:
        """What was planned of a job, and what was predicted of its generations beside what their steps took."""
        return self._call(JobPlan, "GET", f"/v1/jobs/{job}/plan", params={"project": project})
