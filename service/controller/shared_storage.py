"""The server's part of the proof that durable storage is shared: it reads what a node of the job wrote there."""

import asyncio
import posixpath

import structlog

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.states import Reason
from regroup.service.ports.sync import NO_INTENTS, EndRequest, Intents, SupervisorStatus
from regroup.service.store.rows.records import JobRow
from regroup.workers.contract.agent_records import storage_proof_name

_VISIBLE_WITHIN_S = 5.0
"""Longest time until the file is visible on this machine: network file systems cache folders."""
_READ_TIMEOUT_S = 5.0
_log = structlog.get_logger(__name__)


class SharedStorageReconciler(Reconciler):
    """Ends a job before its first step is lost: the server could not read its checkpoints, logs and evidence.

    A job that has trained is not ended, because its storage was shared and may be back soon.
    """

    def __init__(self, leader: LeaderContext) -> None:
        self._leader = leader
        self._seen, self._problem = "", ""
        self._missing_since_s: float | None = None

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the request to end a job whose storage the server does not share."""
        return Intents(end=EndRequest(Reason.INVALID_INPUT, self._problem)) if self._problem else NO_INTENTS

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Read the file that a node wrote, once for each start of the job."""
        nonce = status.storage_proof
        if not nonce or nonce == self._seen or self._problem:
            return
        if self._missing_since_s is None and (job.step > 0 or job.generation > 1):
            return
        uri = posixpath.join(job.storage_uri, storage_proof_name(nonce))
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                is_seen = await asyncio.to_thread(_exists, uri)
        except Exception as error:  # any package of a storage may raise anything
            _log.warning("the server cannot read a job's storage", job=job.id, uri=uri, error=str(error))
            return
        if is_seen:
            self._seen = nonce
            return
        self._missing_since_s = now if self._missing_since_s is None else self._missing_since_s
        if now - self._missing_since_s > _VISIBLE_WITHIN_S:
            names = ", ".join(sorted(status.storage_nodes))
            self._problem = (
                f"storage_uri {job.storage_uri!r} is not shared: the server does not see a file there that {names} "
                "sees. Use storage that the server and every node reach under this URI"
            )


def _exists(uri: str) -> bool:
    from fsspec.core import url_to_fs  # imported late: it also imports the storage's package

    fs, path = url_to_fs(uri)
    try:
        return bool(fs.cat_file(path))
    except FileNotFoundError:
        return False
