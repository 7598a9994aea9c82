"""Client methods to resize a job."""

import time
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from pydantic import BaseModel

from regroup.api.schemas.jobs import Job
from regroup.service.domain.layout import Layout

T = TypeVar("T", bound=BaseModel)
_POLL_S = 0.2


def requested_layout(job: Job) -> Layout | None:
    """Return the layout that a job is being resized to, None if no resize is pending."""
    requested = job.intents.get("resize")
    return Layout(**requested["layout"]) if requested else None


class ResizeCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    def resize(
        self,
        job: str,
        dp: int | None = None,
        *,
        tp: int | None = None,
        pp: int | None = None,
        ranks: int | None = None,
        project: str = "default",
    ) -> Job:
        """Resize a job. It continues from its current step when the capacity is available.

        Args:
            dp: Data-parallel degree.
            tp: Tensor-parallel degree; unchanged if None.
            pp: Pipeline-parallel degree; unchanged if None.
            ranks: Number of ranks, instead of degrees. The planner chooses the degrees.
        """
        size = {"dp": dp, "tp": tp, "pp": pp, "ranks": ranks}
        body = {name: value for name, value in size.items() if value is not None}
        return self._call(Job, "POST", f"/v1/jobs/{job}/resize", params={"project": project}, body=body)

    def wait_for_resize(self, job: str, *, timeout_s: float = 600.0, project: str = "default") -> Layout | None:
        """Wait until no resize of a job is pending, or the job is over, and return its layout.

        The layout is the old one if the resize was withdrawn or the job ended first.

        Raises:
            TimeoutError: The resize is still pending after `timeout_s`. The message gives the reason.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            found: Job = self._call(Job, "GET", f"/v1/jobs/{job}", params={"project": project})
            if requested_layout(found) is None or found.state.is_terminal:
                return found.layout
            if time.monotonic() > deadline:
                reason = next((each.message for each in found.conditions if each.type == "Resized"), "in progress")
                raise TimeoutError(f"timed out after {timeout_s:.0f} s waiting for job {job} to resize: {reason}")
            time.sleep(_POLL_S)
