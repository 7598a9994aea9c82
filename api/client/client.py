"""The Python client, blocking. `async_client` has the same methods for asyncio.

    with Client("http://127.0.0.1:8500") as client:
        job = client.submit(spec)
        for event in client.events(job.id, follow=True):
            print(event.type, event.data)
        assert client.wait(job.id).state == "SUCCEEDED"

Requests are repeated while the server is unavailable. A repeated submission creates one job. Streams reconnect and
continue where they were interrupted. Imports neither torch nor ray.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx2

from regroup.api.client import restart_check
from regroup.api.client.access.audit_methods import AuditMethods
from regroup.api.client.access.identity_methods import IdentityMethods
from regroup.api.client.access.secret_methods import SecretMethods
from regroup.api.client.checkpoint_methods import CheckpointMethods
from regroup.api.client.cluster_methods import ClusterMethods
from regroup.api.client.connection.address import server_url
from regroup.api.client.connection.conditions import Conditions
from regroup.api.client.connection.connection_options import connection_options
from regroup.api.client.connection.contact import Contact
from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.history.curve_methods import CurveMethods
from regroup.api.client.history.story_methods import StoryMethods
from regroup.api.client.hook_methods import HookMethods
from regroup.api.client.operations import job_control, job_queries, plans, server, uploads
from regroup.api.client.page_methods import PageMethods
from regroup.api.client.report_methods import ReportMethods
from regroup.api.client.restart_check import RestartVerdict
from regroup.api.client.usage_methods import UsageMethods
from regroup.api.schemas import history
from regroup.api.schemas import jobs as schemas
from regroup.api.schemas.exec import ExecEvent
from regroup.api.schemas.job_plan import JobPlan
from regroup.api.schemas.plans import PlanReport
from regroup.api.schemas.probes import Probe
from regroup.api.schemas.resize import JobSizes, SpecSizes
from regroup.api.schemas.server import Health, SignIn, Version
from regroup.api.schemas.stacks import RankStack
from regroup.service.domain.layout import Layout
from regroup.service.spec.job import JobSpec

DEFAULT_URL = "http://127.0.0.1:8500"
PATIENCE_S = 15.0


class Client(
    AuditMethods,
    CheckpointMethods,
    ClusterMethods,
    CurveMethods,
    HookMethods,
    IdentityMethods,
    PageMethods,
    ReportMethods,
    SecretMethods,
    StoryMethods,
    UsageMethods,
):
    """One server.

    A job is given by its id or its name. A name means the live job of that name in `project`, else its newest.

    Args:
        url: URL of the server, e.g. `http://127.0.0.1:8500`, or `HOST:PORT`, or `unix:PATH` for a Unix socket.
        token: Token of the server. Default: `REGROUP_TOKEN`, the file that `REGROUP_TOKEN_FILE` names, or the token of
            this machine's server.
        patience_s: Time for which a request is repeated while the server is unavailable.
        ca_file: File with the certificates of authorities to trust, PEM. Default: `REGROUP_CA_FILE`, else the system's.
        transport: Replaces the network in tests.
        contact: Learns when the server does not answer, and when it answers again.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        ca_file: str | Path | None = None,
        transport: httpx2.BaseTransport | None = None,
        contact: Contact | None = None,
    ) -> None:
        self.url = server_url(url)
        self._transport = SyncTransport(
            self.url, token, patience_s, connection_options(self.url, ca_file), transport, contact
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def under(self, *, dry_run: bool = False, if_match: str | None = None, idempotency_key: str | None = None) -> Self:
        """Return this client with conditions for the requests that change something. It uses the same connections.

        Args:
            dry_run: The server checks each request and returns its result, but stores nothing.
            if_match: `etag` of an object as it was read. The server refuses to change it in another state.
            idempotency_key: Key of each POST. Requests with the same key and body take effect once.
        """
        other = copy.copy(self)
        other._transport = self._transport.under(Conditions(dry_run, if_match, idempotency_key))
        return other

    # ------------------------------------------------------------ jobs: submit and control

    def submit(self, spec: JobSpec | Mapping[str, Any], *, idempotency_key: str | None = None) -> schemas.Job:
        """Submit a job. Repeated requests create one job.

        A mapping may name a folder of code, `code: {working_dir: DIR}`. The client uploads it first.
        """
        return self._transport.run(job_control.submit(spec, idempotency_key))

    def validate(self, spec: JobSpec | Mapping[str, Any]) -> schemas.ValidatedSpec:
        """Check a spec and fill in its defaults, without submitting it."""
        return self._transport.run(job_control.validate(spec))

    def spec_sizes(self, spec: JobSpec | Mapping[str, Any]) -> SpecSizes:
        """Predict step time and memory of each size that a job of this spec could have. Submits nothing."""
        return self._transport.run(job_control.spec_sizes(spec))

    def cancel(self, job: str, *, project: str = "default") -> schemas.Job:
        """Cancel a job."""
        return self._transport.run(job_control.cancel(job, project))

    def release(self, job: str, *, project: str = "default") -> schemas.Job:
        """Release the nodes of a failed job that holds them (`hold_on_failure`)."""
        return self._transport.run(job_control.release(job, project))

    def resize(
        self,
        job: str,
        dp: int | None = None,
        *,
        tp: int | None = None,
        pp: int | None = None,
        ranks: int | None = None,
        project: str = "default",
    ) -> schemas.Job:
        """Resize a job. It continues from its current step when the capacity is available.

        Args:
            dp: Data-parallel degree.
            tp: Tensor-parallel degree; unchanged if None.
            pp: Pipeline-parallel degree; unchanged if None.
            ranks: Number of ranks, instead of degrees. The planner chooses the degrees.
        """
        return self._transport.run(job_control.resize(job, project, dp=dp, tp=tp, pp=pp, ranks=ranks))

    def suspend(self, job: str, *, reason: str = "on request", project: str = "default") -> schemas.Job:
        """Suspend a job: it saves its next step and releases its nodes. A queued job leaves the queue."""
        return self._transport.run(job_control.suspend(job, project, reason))

    def resume(self, job: str, *, project: str = "default") -> schemas.Job:
        """Queue a suspended job again. It continues from its newest checkpoint."""
        return self._transport.run(job_control.resume(job, project))

    def wait(self, job: str, *, timeout_s: float | None = None, project: str = "default") -> schemas.Job:
        """Wait until a job has ended. Raises WaitTimeoutError after `timeout_s`."""
        return self._transport.run(job_control.wait(job, project, timeout_s))

    def wait_for_resize(self, job: str, *, timeout_s: float = 600.0, project: str = "default") -> Layout | None:
        """Wait until no resize of a job is pending, or the job has ended, and return its layout.

        The layout is the old one if the resize was cancelled or the job ended first. Raises WaitTimeoutError.
        """
        return self._transport.run(job_control.wait_for_resize(job, project, timeout_s))

    def wait_for_suspend(self, job: str, *, timeout_s: float = 600.0, project: str = "default") -> schemas.Job:
        """Wait until a job is suspended, has ended, or its suspension was cancelled. Raises WaitTimeoutError."""
        return self._transport.run(job_control.wait_for_suspend(job, project, timeout_s))

    def check(self, spec: JobSpec | Mapping[str, Any], *, timeout_s: float | None = None) -> RestartVerdict:
        """Run a few steps of a job, restart it, and compare the state of every rank.

        The restart is from memory, or from a checkpoint of the program if it saves its own state. Raises
        WaitTimeoutError after `timeout_s`.
        """
        return self._transport.run(restart_check.check_restart(spec, timeout_s))

    # ------------------------------------------------------------ jobs: inspect

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        project: str | None = None,
        name: str | None = None,
        author: str | None = None,
        labels: Mapping[str, str] | None = None,
        ids: Sequence[str] = (),
    ) -> Iterator[schemas.JobSummary]:
        """List jobs, newest first, page by page. The author `me` is the identity of this client."""
        return self._transport.pages(job_queries.jobs(state, project, name, author, labels, ids))

    def get(self, job: str, *, project: str = "default") -> schemas.Job:
        """Return a job."""
        return self._transport.run(job_control.get(job, project))

    def why(self, job: str, *, project: str = "default") -> schemas.Why:
        """Explain why a job waits, failed or is slow, and what to do."""
        return self._transport.run(job_queries.why(job, project))

    def stacks(self, job: str, *, project: str = "default") -> list[RankStack]:
        """Return the current stacks of every thread, in rank order. Raises ApiError if the job has no ranks."""
        return self._transport.run(job_queries.stacks(job, project))

    def exec(
        self,
        job: str,
        command: Sequence[str],
        *,
        rank: int = 0,
        timeout: float | str | None = None,
        stdin: bytes = b"",
        project: str = "default",
    ) -> Iterator[ExecEvent]:
        """Run a command on the node of a rank: yield `ExecStarted`, `ExecOutput` as it arrives, and `ExecExit`.

        Closing the iterator stops the command. Raises UnavailableError if the connection is lost; the server then stops
        the command within 30 s.
        """
        return self._transport.exec(job_queries.exec(job, command, project, rank=rank, timeout=timeout, stdin=stdin))

    def incidents(self, job: str, *, project: str = "default") -> list[schemas.Incident]:
        """List the incidents of a job, oldest first."""
        return self._transport.run(job_queries.incidents(job, project))

    def evidence(self, job: str, number: int, *, project: str = "default") -> bytes:
        """Return the evidence of incident `number` (the oldest is 1): a zip file with a `summary.txt`."""
        return self._transport.run(job_queries.evidence(job, number, project))

    def generations(self, job: str, *, project: str = "default") -> list[history.Generation]:
        """List the generations of a job, oldest first."""
        return self._transport.run(job_queries.generations(job, project))

    def ledger(self, job: str, *, project: str = "default") -> history.Ledger:
        """Return the ledger, which proves that every committed step used each of its samples exactly once."""
        return self._transport.run(job_queries.ledger(job, project))

    def job_sizes(self, job: str, *, project: str = "default") -> JobSizes:
        """Return the sizes that a job can have, with their expected speed and the gap of a resize."""
        return self._transport.run(job_queries.job_sizes(job, project))

    def job_plan(self, job: str, *, project: str = "default") -> JobPlan:
        """Return the planner's choice for a job, and its predictions next to the measured values."""
        return self._transport.run(plans.job_plan(job, project))

    # ------------------------------------------------------------ jobs: events, steps, logs

    def events(
        self, job: str, *, after: int = 0, follow: bool = False, project: str = "default"
    ) -> Iterator[history.Event]:
        """List events numbered above `after`; with `follow`, wait for more until the job ends."""
        if follow:
            return self._transport.follow(job_queries.follow_events(job, project, after))
        return self._transport.pages(job_queries.events(job, project, after))

    def steps(
        self, job: str, *, after: int = 0, follow: bool = False, project: str = "default"
    ) -> Iterator[history.Step]:
        """List committed steps above step `after`.

        With `follow`: yield every row numbered above `after` until the job ends. A row of a later generation
        replaces the rows of its step and of later steps.
        """
        if follow:
            return self._transport.follow(job_queries.follow_steps(job, project, after))
        return self._transport.pages(job_queries.steps(job, project, after))

    def step_page(self, job: str, *, after: int, limit: int, project: str = "default") -> list[history.Step]:
        """Return the first committed steps above step `after`, at most `limit` of them and at most 1000."""
        return self._transport.run(job_queries.step_page(job, project, after, limit))

    def logs(
        self,
        job: str,
        *,
        rank: int = 0,
        generation: int | None = None,
        stream: str = "stdout",
        follow: bool = False,
        project: str = "default",
    ) -> Iterator[str]:
        """Yield the output of a rank in one generation (None: the newest); with `follow`, also of later generations."""
        if follow:
            yield from self._transport.follow(job_queries.follow_log(job, project, rank, generation, stream))
        else:
            yield self._transport.run(job_queries.log(job, project, rank, generation, stream))

    # ------------------------------------------------------------ code

    def upload_working_dir(
        self,
        path: str | Path,
        *,
        on_progress: uploads.Progress | None = None,
        extra_folder: Path | None = None,
        data_folders: Collection[Path] = (),
        on_left_out: uploads.LeftOut | None = None,
    ) -> str:
        """Pack a folder of code, upload what the server lacks, and return the address for `code.archive`.

        Args:
            path: The folder.
            on_progress: Called with the bytes uploaded and the bytes in total.
            extra_folder: Another folder, whose content is added to the archive.
            data_folders: Folders to leave out, such as the job's storage. Folders that a server marked as its own are
                always left out.
            on_left_out: Called with the folders that were left out, if there are any.

        Raises:
            ArchiveError: The folder cannot be packed, or is larger than the server accepts.
        """
        return self._transport.run(
            uploads.upload_folder(Path(path), on_progress, extra_folder, data_folders, on_left_out)
        )

    def upload_archive(self, path: str | Path, *, on_progress: uploads.Progress | None = None) -> str:
        """Upload a tar file of code and return its address. Raises ArchiveError if the file cannot be read."""
        return self._transport.run(uploads.upload_file(Path(path), on_progress))

    # ------------------------------------------------------------ planner and server

    def plan(self, **question: Any) -> PlanReport:
        """Find the fastest layouts for a model. Accepts the fields of `PlanRequest` as keywords.

        Raises ApiError if the request is invalid or no layout fits; the error names the constraint.
        """
        return self._transport.run(plans.plan(question))

    def probe(self, **request: Any) -> schemas.Job:
        """Submit a job that measures the cluster. Accepts the fields of `ProbeRequest` as keywords.

        Raises ApiError if another probe is pending, or no open node has such a device.
        """
        return self._transport.run(plans.probe(request))

    def probes(self) -> list[Probe]:
        """List the newest measurements of each device type."""
        return self._transport.run(plans.probes())

    def health(self) -> Health:
        """Return the health of each component, even if the server is not ready."""
        return self._transport.run(server.health())

    def version(self) -> Version:
        """Return the versions of the server and of the API."""
        return self._transport.run(server.version())

    def sign_in_methods(self) -> SignIn:
        """Return how people sign in. Needs no token."""
        return self._transport.run(server.sign_in_methods())

    def spec_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a job spec."""
        return self._transport.run(server.spec_schema())
