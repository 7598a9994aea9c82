"""`regroup.Job`: a job in a notebook or a script. A thin layer over the client."""

import os
from typing import Any

from regroup.api.client.discovery import connect, feed
from regroup.api.client.notebook import NotebookCell, is_notebook
from regroup.api.live.display import display
from regroup.api.live.follow import follow
from regroup.api.live.job_view import JobView
from regroup.api.schemas import jobs
from regroup.service.domain.errors import RegroupError
from regroup.service.domain.states import JobState


class JobNotSucceededError(RegroupError):
    """The job failed or was cancelled; `job` is its final state."""

    def __init__(self, job: jobs.Job) -> None:
        self.job = job
        message = f": {job.message}" if job.message else ""
        trace = str((job.error or {}).get("traceback") or "").rstrip()
        super().__init__(f"job {job.id} {job.state} ({job.reason}){message}" + (f"\n\n{trace}" if trace else ""))

    def __reduce__(self) -> tuple[type["JobNotSucceededError"], tuple[jobs.Job]]:
        return (JobNotSucceededError, (self.job,))


class Job:
    """A submitted job.

    Args:
        job: Id of the job, or a name: then the newest job of that name.
        url: URL of the server; None for REGROUP_SERVER, or else this machine's server.
        project: Project in which a name is looked up.
    """

    def __init__(self, job: str, *, url: str | None = None, project: str = "default") -> None:
        self._client = connect(url or os.environ.get("REGROUP_SERVER"), patient=True)
        found = self._client.get(job, project=project)
        self.id, self.name = found.id, found.name

    def __repr__(self) -> str:
        return f"regroup.Job({self.id!r}, name={self.name!r})"

    def close(self) -> None:
        """Close the connections. The job continues."""
        self._client.close()

    # ------------------------------------------------------------ current state

    @property
    def details(self) -> jobs.Job:
        """All fields of the job as the server reports them now."""
        return self._client.get(self.id)

    @property
    def status(self) -> str:
        """Current state, e.g. `RUNNING`."""
        return str(self.details.state)

    @property
    def incidents(self) -> list[jobs.Incident]:
        """Incidents of the job with their costs, oldest first."""
        return self._client.incidents(self.id)

    def evidence(self, number: int) -> bytes:
        """Return the evidence of incident `number` as the bytes of a zip file."""
        return self._client.evidence(self.id, number)

    def steps(self) -> list[dict[str, Any]]:
        """Return the committed steps in order, one mapping for each: step, loss, duration_s, learning_rate, …."""
        return [row.model_dump(mode="json") for row in self._client.steps(self.id)]

    def logs(self, *, rank: int = 0, generation: int | None = None, stream: str = "stdout") -> str:
        """Return the output of a rank in one generation; None for the newest."""
        return "".join(self._client.logs(self.id, rank=rank, generation=generation, stream=stream))

    def why(self) -> jobs.Why:
        """Explain why the job waits, failed or is slow, and what to do."""
        return self._client.why(self.id)

    # ------------------------------------------------------------ watch and wait

    def watch(self) -> None:
        """Show the job live until it ends: in a notebook cell, on a terminal screen, or else as lines."""
        details = self.details
        view = JobView(self.id, self.name, details.steps, workload=details.workload_kind)
        with NotebookCell() if is_notebook() else display() as out:
            follow(feed(self._client, self.id), view, out)

    def wait(self, timeout_s: float | None = None) -> jobs.Job:
        """Wait until the job ends, and return all its fields.

        Raises:
            WaitTimeoutError: the job did not end within `timeout_s`.
        """
        return self._client.wait(self.id, timeout_s=timeout_s)

    def result(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until the job ends, and return the function's `run.result`.

        Raises:
            JobNotSucceededError: the job failed or was cancelled. The message ends with the function's traceback.
            WaitTimeoutError: the job did not end within `timeout_s`.
        """
        job = self.wait(timeout_s)
        if job.state is not JobState.SUCCEEDED:
            raise JobNotSucceededError(job)
        return job.result

    def cancel(self) -> None:
        """Cancel the job. Its devices are released when every rank has exited."""
        self._client.cancel(self.id)

    def suspend(self, reason: str = "on request") -> None:
        """Suspend the job: it saves its next step and releases its nodes until it is resumed."""
        self._client.suspend(self.id, reason=reason)

    def resume(self) -> None:
        """Queue the suspended job again. It continues from its newest checkpoint."""
        self._client.resume(self.id)
