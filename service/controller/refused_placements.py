"""Jobs whose devices the cluster refused: each further attempt waits twice as long, and the job shows why it waits."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from regroup.service.domain.backoff import backoff_s
from regroup.service.store.rows.records import PLACEABLE, Condition

_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 300.0
_REFUSED = "placement_refused"


def retry_delay_s(refusals: int) -> float:
    """Return the delay before the next attempt after this number of consecutive refusals.

    Without it, a job whose devices something outside of the service uses would hold and release the others, and
    record two events, in every pass.
    """
    return backoff_s(refusals, first_s=_FIRST_DELAY_S, longest_s=_LONGEST_DELAY_S)


@dataclass(frozen=True)
class _Refusal:
    count: int
    why: str
    retry_s: float
    """Unix seconds before which the job is not placed again."""


class RefusedPlacements:
    """The jobs of one leader whose latest placement was refused. A new leader starts with the first delay."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Initialize. `clock`: returns Unix seconds."""
        self._clock = clock
        self._refusals: dict[str, _Refusal] = {}

    def record(self, job_id: str, why: str) -> None:
        """Record that the cluster refused the devices of a job, or did not reserve them in time."""
        before = self._refusals.get(job_id)
        count = 1 if before is None else before.count + 1
        self._refusals[job_id] = _Refusal(count, why, self._clock() + retry_delay_s(count))

    def forget(self, job_id: str) -> None:
        """Forget the refusals of a job: it has its devices."""
        self._refusals.pop(job_id, None)

    def retain(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._refusals = {job_id: refusal for job_id, refusal in self._refusals.items() if job_id in job_ids}

    def condition(self, job_id: str) -> Condition | None:
        """Return why the job is not placed now, as a condition; None if it may be placed."""
        refusal = self._refusals.get(job_id)
        if refusal is None or self._clock() >= refusal.retry_s:
            return None
        times = "once" if refusal.count == 1 else f"{refusal.count} times in a row"
        at = datetime.fromtimestamp(refusal.retry_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = (
            f"the cluster refused the devices {times}, last because: {refusal.why}; the next attempt is at {at}. If it "
            "recurs, something that this service did not start uses these devices: compare `regroup nodes` with the "
            "Ray dashboard"
        )
        return Condition(PLACEABLE, False, _REFUSED, message)
