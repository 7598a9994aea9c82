"""Many short jobs on one server: each is submitted, possibly cancelled, and must end as its kind says."""

import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from regroup.api.client.client import Client
from tests.support.many_jobs.services import Service

_JOB_S = 240.0
"""Longest time of a job, with a restart of the server in it."""
EXPECTED: Mapping[str, str] = {
    "ends": "SUCCEEDED", "recovers": "SUCCEEDED", "fails": "FAILED", "waits": "CANCELLED", "withdrawn": "CANCELLED",
}  # fmt: skip
"""Kind of a job → its terminal state. `waits` is cancelled while it runs, `withdrawn` right after its submission."""
_SLEEP = "import time\ntime.sleep(600)"
SCRIPTS: Mapping[str, str] = {"fails": "raise SystemExit(1)", "waits": _SLEEP, "withdrawn": _SLEEP}
"""Kind → script; all others end at once."""


class ShortJobs:
    """Runs short jobs, several at a time.

    Args:
        weights: kind → share of the jobs.
        at_once: number of jobs that are submitted at the same time.
    """

    def __init__(self, service: Service, folder: Path, weights: Mapping[str, float], at_once: int, seed: int) -> None:
        self._service, self._weights, self._seed = service, weights, seed
        self._folder = folder
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="job")
        self._of_thread = threading.local()
        for kind in EXPECTED:
            (folder / f"{kind}.py").write_text(SCRIPTS.get(kind, 'print("done")') + "\n")

    def run(self, numbers: Iterable[int], *, restart: bool) -> list[str]:
        """Run jobs to their ends, and describe each that ended otherwise.

        Args:
            restart: kill and restart the server as soon as the first of the jobs has ended.
        """
        jobs: Sequence[Future[str]] = [self._threads.submit(self._run_job, number) for number in numbers]
        if restart:
            wait(jobs, return_when=FIRST_COMPLETED)
            self._service.restart()
        return [problem for job in jobs if (problem := job.result())]

    def close(self) -> None:
        """Start no further jobs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_job(self, number: int) -> str:
        kind = self._kind(number)
        client = self._client()
        try:
            job = client.submit(self._spec(kind, number))
            if kind == "waits":
                self._wait_until_running(client, job.id)
            if EXPECTED[kind] == "CANCELLED":
                client.cancel(job.id)
            ended = client.wait(job.id, timeout_s=_JOB_S)
        except Exception as error:
            return f"{kind}-{number}: {type(error).__name__}: {error}"
        if ended.state == EXPECTED[kind]:
            return ""
        return f"{kind}-{number} ended {ended.state} ({ended.reason}: {ended.message}), expected {EXPECTED[kind]}"

    def _kind(self, number: int) -> str:
        return random.Random(f"{self._seed}:{number}").choices([*self._weights], [*self._weights.values()])[0]

    def _spec(self, kind: str, number: int) -> dict[str, Any]:
        workload = {"kind": "script", "entrypoint": str(self._folder / f"{kind}.py")}
        return {"name": f"{kind}-{number}", "workload": workload, "layout": {"dp": 1}}

    def _client(self) -> Client:
        if not hasattr(self._of_thread, "client"):
            self._of_thread.client = self._service.client()
        return self._of_thread.client

    @staticmethod
    def _wait_until_running(client: Client, job_id: str) -> None:
        deadline_s = time.monotonic() + _JOB_S
        while (job := client.get(job_id)).state != "RUNNING":
            if job.finished_at is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the job is {job.state} ({job.message}) instead of RUNNING")
            time.sleep(0.2)
