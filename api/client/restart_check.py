"""Check of a restart (`regroup run --check`): a few steps of a job, straight on and after a restart.

The restart is from memory, or from a checkpoint of the program if it saves its own state.

The server runs the job with `recovery.verify: restart_only`. Its end decides the verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from regroup.api.client.connection.requests import Operation
from regroup.api.client.operations import job_control
from regroup.api.schemas.jobs import Job
from regroup.service.domain.states import Reason
from regroup.service.spec.job import JobSpec

_SUFFIX = "-check"
_MAX_NAME = 63
_NOT_OF_A_CHECK = ("resume_from", "depends_on", "faults", "hold_on_failure", "max_queue_time")
"""Fields that would end the first steps, delay them, or let them start elsewhere than at step 0."""

Outcome = Literal["equal", "different", "not_compared"]
_OUTCOMES: Mapping[str, Outcome] = {Reason.RESTART_VERIFIED: "equal", Reason.STATE_NOT_RESTORED: "different"}


@dataclass(frozen=True)
class RestartVerdict:
    """The result of a restart check."""

    job_id: str
    """Id of the job that made the check."""
    job_name: str
    outcome: Outcome
    """`different`: a restart changes the result. `not_compared`: the job ended before the comparison."""
    message: str
    """The reason, for people."""
    after_step: int | None = None
    """First step after which the states differ; None also if it is the first one after the restart of a program that
    does not count its steps."""
    ranks: tuple[int, ...] = ()
    """Ranks whose states differ."""
    parts: tuple[str, ...] = ()
    """Parts of the state that differ, by the names that they have in snapshots."""

    @property
    def is_equal(self) -> bool:
        """True if the restart changed nothing."""
        return self.outcome == "equal"


def check_restart(spec: JobSpec | Mapping[str, Any], timeout_s: float | None) -> Operation[RestartVerdict]:
    """Submit the check of a spec, wait for its end, and return the verdict."""
    job = yield from job_control.submit(spec_of_check(spec), None)
    return verdict_of((yield from job_control.wait(job.id, job.project, timeout_s)))


def spec_of_check(spec: JobSpec | Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the job that checks a restart of `spec`. Everything that decides the result stays the same."""
    body = job_control.as_json(spec)
    kept = {name: value for name, value in body.items() if name not in _NOT_OF_A_CHECK}
    name, recovery = body.get("name"), body.get("recovery")
    if isinstance(name, str):
        kept["name"] = name[: _MAX_NAME - len(_SUFFIX)].rstrip("-") + _SUFFIX
    if recovery is None or isinstance(recovery, Mapping):  # the server names anything else as invalid
        kept["recovery"] = {**cast(Mapping[str, Any], recovery or {}), "verify": "restart_only"}
    return kept


def verdict_of(job: Job) -> RestartVerdict:
    """Return the verdict of a check that has ended."""
    outcome = _OUTCOMES.get(job.reason, "not_compared")
    found = (job.error or {}) if outcome == "different" else {}
    message = _COMPLETE if outcome == "not_compared" and job.state == "SUCCEEDED" else job.message
    return RestartVerdict(
        job.id,
        job.name,
        outcome,
        found.get("message") or message or f"the job ended as {job.state} ({job.reason})",
        found.get("after_step"),
        tuple(found.get("ranks", ())),
        tuple(found.get("parts", ())),
    )


_COMPLETE = "the program ended before steps were repeated: give it more steps, and let it save a checkpoint early"
