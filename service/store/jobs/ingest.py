"""Ingestion of supervisors' events: each key once, in the order of sequence numbers."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import IllegalTransitionError
from regroup.service.domain.job_events import JobEvent, MalformedEventError, MetricsReported, MirrorChanged, decode
from regroup.service.domain.step_columns import StepColumns, split_steps
from regroup.service.store.jobs.job_writer import JobWriter, flush_all
from regroup.service.store.jobs.mirror_ticks import record_sets
from regroup.service.store.jobs.reported_events import apply_event, record_rejected
from regroup.service.store.jobs.sound_steps import first_of_each, sound_steps
from regroup.service.store.jobs.step_rows import add_steps, fold_steps
from regroup.service.store.jobs.supervisor_report import changes_of_status
from regroup.service.store.notices.notice_rows import Notice, record_notices
from regroup.service.store.rows.reported_conditions import Reported
from regroup.service.store.rows.story import StepMark
from regroup.service.store.schema.json_values import number
from regroup.service.store.schema.tables import events

REPORT_EVERY_S = 30.0
"""Seconds between two stored times of reports that bring nothing else."""
_UNRECORDED = (MetricsReported, MirrorChanged)
"""Classes of the events that the history does not contain."""
# Statements that are built once: the steps of all jobs pass through them.
_KEYS = sa.select(events.c.key).where(
    events.c.job_id == sa.bindparam("of_job"), events.c.key.in_(sa.bindparam("keys", expanding=True))
)


@dataclass(frozen=True)
class Report:
    """Events and status that a supervisor reported in one sync."""

    boot_id: str
    """Incarnation of the supervisor."""
    events: Sequence[Reported]
    status: Mapping[str, Any]
    """`goodput`, `reported_at` and `ranks`; None or missing: as before."""
    steps: StepColumns
    """The committed steps. Their events are not among `events`."""

    @classmethod
    def of(
        cls, boot_id: str, reported: Sequence[Reported], status: Mapping[str, Any], steps: StepColumns | None
    ) -> "Report":
        """Return the report of events. If `steps` is None, they are among the events."""
        if steps is None:
            steps, reported = split_steps(reported)
        return cls(boot_id, reported, status, steps)


@dataclass(frozen=True)
class _Intake:
    """The new events of one job, in the order of their numbers."""

    writer: JobWriter
    report: Report
    fresh: Sequence[tuple[Reported, JobEvent | MalformedEventError]]
    steps: StepColumns
    """The first report of each new step."""
    newest: int
    """Number of the newest event."""

    @classmethod
    def of(cls, writer: JobWriter, report: Report) -> "_Intake":
        acked = writer.job.acked_seq if writer.job.supervisor_boot_id == report.boot_id else 0
        events = sorted((event for event in report.events if event.seq > acked), key=lambda event: event.seq)
        new = report.steps.after(acked)
        newest = max([acked, *(event.seq for event in events[-1:]), *new.seq[-1:]])
        fresh = [(event, _decode(event)) for event in events]
        steps, malformed = sound_steps(new)
        if malformed:
            fresh = sorted([*fresh, *malformed], key=lambda each: each[0].seq)
        return cls(writer, report, fresh, first_of_each(steps), newest)

    @property
    def sets(self) -> list[StepMark]:
        """Sets that other nodes hold."""
        return [
            StepMark(event.generation, body.step, event.time_s)
            for event, body in self.fresh
            if isinstance(body, MirrorChanged) and body.step is not None
        ]


async def ingest(
    connection: AsyncConnection, reports: Sequence[tuple[JobWriter, Report]], *, is_thorough: bool = True
) -> None:
    """Apply the new events of each report, then store the newest sequence number of the supervisor's incarnation.

    Steps and other progress take the same number of statements for one job as for many.

    Args:
        connection: transaction that has locked the rows of all these jobs.
        reports: reports, each of another job.
        is_thorough: see `add_steps`.
    """
    intakes = [_Intake.of(writer, report) for writer, report in reports]
    # Steps first: a script may report metrics of a step in the same batch.
    await add_steps(connection, [(each.writer, each.steps) for each in intakes], is_thorough=is_thorough)
    for each in intakes:
        await _apply_all(each.writer, each.fresh, each.steps)
    await record_sets(connection, {each.writer.job.id: sets for each in intakes if (sets := each.sets)})
    for each in intakes:
        before, changes = each.writer.job, _status_changes(each)
        if "save" in changes and before.save is None:  # pages follow the progress from then on
            reported_s = number(each.report.status, "reported_at")
            await record_notices(connection, [Notice.of_save(before, reported_s or 0.0)])
        each.writer.defer(**changes)
    await flush_all(connection, [each.writer for each in intakes])


async def _apply_all(
    writer: JobWriter, fresh: Sequence[tuple[Reported, JobEvent | MalformedEventError]], steps: StepColumns
) -> None:
    """Apply events in order. Steps that follow each other change the row once."""
    done = await _stored_keys(writer, [event.key for event, body in fresh if not isinstance(body, _UNRECORDED)])
    folded = 0
    for event, body in fresh:
        if event.key in done:
            continue
        done.add(event.key)
        if not isinstance(body, MirrorChanged):  # the step of a mirrored set is another column
            before = bisect.bisect_left(steps.seq, event.seq)
            writer.defer(**fold_steps(writer.job, steps.select(range(folded, before))))
            folded = before
        if isinstance(body, MalformedEventError):
            await _reject(writer, event, body)
            continue
        try:
            await apply_event(writer, event, body)
        except (ValueError, KeyError, TypeError, IllegalTransitionError) as error:
            await _reject(writer, event, error)
    writer.defer(**fold_steps(writer.job, steps.select(range(folded, len(steps)))))


def _status_changes(intake: _Intake) -> dict[str, Any]:
    """Return the columns that show the supervisor's answer."""
    job, report = intake.writer.job, intake.report
    changes = changes_of_status(job, report.status)
    if (report.boot_id, intake.newest) != (job.supervisor_boot_id, job.acked_seq):
        changes |= {"supervisor_boot_id": report.boot_id, "acked_seq": intake.newest}
    reported_s = number(report.status, "reported_at")
    if reported_s is not None and (changes or reported_s - (job.reported_at or 0.0) >= REPORT_EVERY_S):
        changes["reported_at"] = reported_s
    return changes


def _decode(event: Reported) -> JobEvent | MalformedEventError:
    try:
        return decode(event.type, event.data)
    except MalformedEventError as error:
        return error


async def _stored_keys(writer: JobWriter, keys: Sequence[str]) -> set[str]:
    if not keys:
        return set()
    return set((await writer.connection.execute(_KEYS, {"of_job": writer.job.id, "keys": keys})).scalars())


async def _reject(writer: JobWriter, event: Reported, error: Exception) -> None:
    """Record an event that cannot be applied, once. A rejected batch would be sent again forever."""
    if not await _stored_keys(writer, [event.key]):
        await record_rejected(writer, event, error)
