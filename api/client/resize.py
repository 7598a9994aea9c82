"""Client methods to resize a job."""

import time
from collections.abc import Callable
from typing import Any

from regroup.api.schemas.jobs import Job
from regroup.service.domain.layout import Layout

_POLL_S = 0.2


def wanted_of(job: Job) -> Layout | None:
    """The layout that a job is to have and has not yet."""
    wanted = job.intents.get("resize")
    return Layout(**wanted["layout"]) if wanted else None


class Sizes:
    """The client's calls: `client.sizes`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def set(
        self,
        job: str,
        dp: int | None = None,
        *,
        tp: int | None = None,
        pp: int | None = None,
        ranks: int | None = None,
        project: str = "default",
    ) -> Job:
        """Have a job go on at this size from where it stands, as soon as there is room for it.

        Args:
            ranks: instead of degrees: so many, split as the planner says.
        """
        asked = {"dp": dp, "tp": tp, "pp": pp, "ranks": ranks}
        body = {name: value for name, value in asked.items() if value is not None}
        return self._call(Job, "POST", f"/v1/jobs/{job}/resize", params={"project": project}, body=body)

    def wait(self, job: str, *, timeout_s: float = 600.0, project: str = "default") -> Layout | None:
        """The job's layout once nothing is wanted of its size any more, or it is over: then it may be the old one.

        Raises:
            TimeoutError: it still waits after `timeout_s`; its conditions say for what.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            found: Job = self._call(Job, "GET", f"/v1/jobs/{job}", params={"project": project})
            if wanted_of(found) is None or found.state.is_terminal:
                return found.layout
            if time.monotonic() > deadline:
                why = next((each.message for each in found.conditions if each.type == "Resized"), "it is under way")
                raise TimeoutError(f"job {job} is not of its new size after {timeout_s:.0f} s: {why}")
            time.sleep(_POLL_S)
