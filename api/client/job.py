"""`regroup.Job`: one job, as a notebook or a script holds it. A thin layer over the client."""

import os
from typing import Any

from regroup.api.client.discovery import connect, feed
from regroup.api.client.notebook import NotebookCell, is_notebook
from regroup.api.live.follow import display, follow
from regroup.api.live.job_view import JobView
from regroup.api.schemas import jobs
from regroup.service.domain.errors import RegroupError
from regroup.service.domain.states import JobState


class JobNotSucceededError(RegroupError):
    """The job ended otherwise than asked; `job` is its last state."""

    def __init__(self, job: jobs.Job) -> None:
        self.job = job
        message = f": {job.message}" if job.message else ""
        trace = str((job.error or {}).get("traceback") or "").rstrip()
        super().__init__(f"job {job.id} {job.state} ({job.reason}){message}" + (f"\n\n{trace}" if trace else ""))

    def __reduce__(self) -> tuple[type["JobNotSucceededError"], tuple[jobs.Job]]:
        return (JobNotSucceededError, (self.job,))


class Job:
    """A job that was submitted before, here or elsewhere.

    Args:
        job: its id, or its name: then the newest of that name.
        url: the server; else REGROUP_SERVER, else the one that runs on this machine.
    """

    def __init__(self, job: str, *, url: str | None = None, project: str = "default") -> None:
        self._client = connect(url or os.environ.get("REGROUP_SERVER"), patient=True)
        found = self._client.get(job, project=project)
        self.id, self.name = found.id, found.name

    def __repr__(self) -> str:
        return f"regroup.Job({self.id!r}, name={self.name!r})"

    def close(self) -> None:
        """Give back the connections; the job goes on."""
        self._client.close()

    # ------------------------------------------------------------ now

    @property
    def details(self) -> jobs.Job:
        """Everything the server says of it now."""
        return self._client.get(self.id)

    @property
    def status(self) -> str:
        """Its state now, e.g. `RUNNING`."""
        return str(self.details.state)

    @property
    def incidents(self) -> list[jobs.Incident]:
        """What befell it and what it cost, oldest first."""
        return self._client.incidents(self.id)

    def evidence(self, number: int) -> bytes:
        """What was known of incident `number`: a zip file."""
        return self._client.evidence(self.id, number)

    def steps(self) -> list[dict[str, Any]]:
        """Its committed steps in order, one mapping each: step, loss, duration_s, learning_rate, …"""
        return [row.model_dump(mode="json") for row in self._client.steps(self.id)]

    def logs(self, *, rank: int = 0, generation: int | None = None, stream: str = "stdout") -> str:
        """What a rank has printed: in one generation, the newest if None."""
        return "".join(self._client.logs(self.id, rank=rank, generation=generation, stream=stream))

    def why(self) -> jobs.Why:
        """Why it waits, failed or is slow, and what to do."""
        return self._client.why(self.id)

    # ------------------------------------------------------------ until it is over

    def watch(self) -> None:
        """Show it live until it is over: in a notebook one picture that changes, on a terminal a screen, else lines."""
        view = JobView(self.id, self.name, self.details.steps)
        with NotebookCell() if is_notebook() else display() as out:
            follow(feed(self._client, self.id), view, out)

    def wait(self, timeout_s: float | None = None) -> jobs.Job:
        """Everything the server says of it once it is over.

        Raises:
            WaitTimeoutError: it was not over after `timeout_s`.
        """
        return self._client.wait(self.id, timeout_s=timeout_s)

    def result(self, timeout_s: float | None = None) -> dict[str, Any]:
        """What the function left in `run.result`, once the job is over.

        Raises:
            JobNotSucceededError: it failed or was cancelled; the message ends with the function's traceback.
            WaitTimeoutError: it was not over after `timeout_s`.
        """
        job = self.wait(timeout_s)
        if job.state is not JobState.SUCCEEDED:
            raise JobNotSucceededError(job)
        return job.result

    def cancel(self) -> None:
        """Ask it to stop; its devices are given back once every rank is gone."""
        self._client.cancel(self.id)

    def suspend(self, reason: str = "on request") -> None:
        """Have it save its next step and hold nothing until it is resumed."""
        self._client.suspend(self.id, reason=reason)

    def resume(self) -> None:
        """Have it queue again, to go on from its newest checkpoint."""
        self._client.resume(self.id)
