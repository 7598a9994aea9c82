"""Client methods to suspend and resume a job."""

import time
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from pydantic import BaseModel

from regroup.api.schemas.jobs import Job
from regroup.service.domain.states import JobState

T = TypeVar("T", bound=BaseModel)
_POLL_S = 0.2


class SuspendCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    def suspend(self, job: str, *, reason: str = "on request", project: str = "default") -> Job:
        """Have a job save its next step and hold nothing until it is resumed; one that queues waits no longer."""
        path, body = f"/v1/jobs/{job}/suspend", {"reason": reason}
        return self._call(Job, "POST", path, params={"project": project}, body=body)

    def resume(self, job: str, *, project: str = "default") -> Job:
        """Have a suspended job queue again; it goes on from its newest checkpoint."""
        return self._call(Job, "POST", f"/v1/jobs/{job}/resume", params={"project": project})

    def wait_for_suspend(self, job: str, *, timeout_s: float = 600.0, project: str = "default") -> Job:
        """The job once it is suspended, or over, or no longer wanted to be suspended.

        Raises:
            TimeoutError: it has not let go after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._call(Job, "GET", f"/v1/jobs/{job}", params={"project": project})
            if found.state == JobState.SUSPENDED or found.state.is_terminal or "suspend" not in found.intents:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {found.id} is {found.state} at step {found.step} after {timeout_s:.0f} s")
            time.sleep(_POLL_S)
