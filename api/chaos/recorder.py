"""Record of a job with injected faults: the API's data, its leftovers, and the number of loadable checkpoints."""

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regroup.api.client.client import Client
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import InjectedFault, Record
from regroup.service.domain.states import JobState
from regroup.service.local import leftovers

_MANIFEST = "manifest.json"
_VERIFY_EVERY_S = 1.0
_CLEANUP_TIMEOUT_S = 30.0


def list_loadable_checkpoints(storage_uri: str) -> list[str]:
    """Return the names of the intact checkpoints in a job's storage; none if the storage is not on this machine.

    A checkpoint is intact if every file of its manifest exists with the right size and checksum.
    """
    place = urlsplit(storage_uri)
    if place.scheme not in ("file", ""):
        return []
    folders = Path(place.path, "checkpoints").glob(f"*/{_MANIFEST}")
    return sorted(manifest.parent.name for manifest in folders if _is_loadable(manifest))


class CheckpointCounter:
    """Counter of a job's loadable checkpoints, updated repeatedly while the job runs."""

    def __init__(self, find: Callable[[str], Sequence[str]] = list_loadable_checkpoints) -> None:
        """Count the checkpoints that `find` returns for a storage URI."""
        self._find = find
        self.fewest: int | None = None
        """Smallest count since the first checkpoint; None before it, or if the storage is not on this machine."""
        self._counted_s = 0.0

    def update(self, job: Job) -> None:
        """Verify all checkpoints, at most once per second and at the end of the job."""
        if time.monotonic() - self._counted_s < _VERIFY_EVERY_S and not JobState(job.state).is_terminal:
            return
        self._counted_s = time.monotonic()
        count = len(self._find(job.storage_uri))
        if count or self.fewest is not None:
            self.fewest = min(count, count if self.fewest is None else self.fewest)


def record_job(
    client: Client,
    job_id: str,
    plan: FaultPlan,
    *,
    injected: Sequence[InjectedFault] = (),
    fewest_loadable: int | None = None,
) -> Record:
    """Wait until an ended job has no leftovers, for at most 30 s, and return its record."""
    job = client.get(job_id)
    deadline = time.monotonic() + _CLEANUP_TIMEOUT_S
    while (left := leftovers.find_leftovers([job.id])) and time.monotonic() < deadline:
        time.sleep(0.1)

    def plain(items: Any) -> tuple[dict[str, Any], ...]:
        return tuple(item.model_dump(mode="json") for item in items)

    return Record(
        plan=plan,
        job=job.model_dump(mode="json"),
        incidents=plain(client.incidents(job.id)),
        events=plain(client.events(job.id)),
        generations=plain(client.generations(job.id)),
        rows=plain(client.steps(job.id)),
        checkpoints=plain(client.checkpoints(job.id, removed=True)),
        ledger=client.ledger(job.id).model_dump(mode="json"),
        seconds=client.why(job.id).seconds,
        injected=tuple(injected),
        leftovers=tuple(left),
        fewest_loadable=fewest_loadable,
    )


def _is_loadable(manifest: Path) -> bool:
    try:
        files = json.loads(manifest.read_text())["files"]
        return all(_is_intact(manifest.parent / entry["name"], entry) for entry in files)
    except (OSError, ValueError):  # removed by retention, or damaged
        return False


def _is_intact(path: Path, entry: Mapping[str, Any]) -> bool:
    data = path.read_bytes()
    return (len(data), zlib.crc32(data)) == (entry["size_bytes"], entry["crc32"])
