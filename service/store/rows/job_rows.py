"""Conversion of stored rows into job records. A damaged row raises no error: its record shows the damage."""

import math
from collections.abc import Mapping
from typing import Any

import structlog

from regroup.service.domain.states import JobState, Reason
from regroup.service.store.rows.records import PLATFORM_FAULT, Condition, JobRow
from regroup.service.store.schema.json_values import CorruptJson
from regroup.service.store.schema.tables import jobs

JOB_COLUMNS = [column for column in jobs.c if column.name in JobRow.__dataclass_fields__]
"""Columns of a job's record."""
_NUMBER = (int, float)
_NO_NUMBER = (int, float, type(None))
_TEXT, _OBJECT, _NO_OBJECT = (str,), (dict,), (dict, type(None))
_EXPECTED: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "id": (_TEXT, ""),
    "project": (_TEXT, ""),
    "name": (_TEXT, ""),
    "owner": (_TEXT, ""),
    "author": (_TEXT, ""),
    "spec": (_OBJECT, {}),
    "storage_uri": (_TEXT, ""),
    "resume_uri": ((str, type(None)), None),
    "state": (_TEXT, JobState.FAILED.value),
    "reason": (_TEXT, Reason.PLATFORM_ERROR.value),
    "message": (_TEXT, ""),
    "error": (_NO_OBJECT, None),
    "version": ((int,), 0),
    "revision": ((int,), 0),
    "intents": (_OBJECT, {}),
    "conditions": ((list,), []),
    "phase": (_NO_OBJECT, None),
    "save": (_NO_OBJECT, None),
    "created_at": (_NUMBER, 0.0),
    "queued_at": (_NUMBER, 0.0),
    "generation": ((int,), 0),
    "layout": (_NO_OBJECT, None),
    "step": ((int,), 0),
    "step_rows": ((int,), 0),
    "stall_s": (_NUMBER, 0.0),
    "mirrored_step": ((int, type(None)), None),
    "result": (_NO_OBJECT, None),
    "rank_phases": (_OBJECT, {}),
    "supervisor_boot_id": (_TEXT, ""),
    "acked_seq": ((int,), 0),
}
"""Column → accepted types, and the value in place of a damaged one. All other columns are optional numbers."""
_OTHERS: tuple[tuple[type, ...], Any] = (_NO_NUMBER, None)
_MOST_SHAPES = 1000
_sound_shapes: set[tuple[type, ...]] = set()
"""Types of all columns, of rows whose types were checked: nearly all rows have one of a few shapes."""
_log = structlog.get_logger(__name__)


def job_row(row: Mapping[Any, Any]) -> JobRow:
    """Convert a stored row into its record. Damaged columns are replaced and named in a condition `PlatformFault`."""
    fields: dict[str, Any] = dict(row)
    damaged = _replace_damaged(fields)
    try:
        fields["state"] = JobState(fields["state"])
    except ValueError:
        fields["state"] = JobState.FAILED
        damaged.append("state")
    try:
        fields["conditions"] = tuple(Condition(**item) for item in fields["conditions"])
    except TypeError:
        fields["conditions"] = ()
        damaged.append("conditions")
    if damaged:
        names = ", ".join(sorted(damaged))
        _log.error("a job's stored record is damaged", job=fields["id"], columns=names)
        others = (each for each in fields["conditions"] if each.type != PLATFORM_FAULT)
        fields["conditions"] = (*others, _corrupt_record(names))
    return JobRow(**fields, damaged=tuple(sorted(damaged)))


def _replace_damaged(fields: dict[str, Any]) -> list[str]:
    """Replace damaged values; return the names of their columns."""
    damaged = [name for name, value in fields.items() if isinstance(value, float) and not math.isfinite(value)]
    shape = tuple(map(type, fields.values()))
    if shape not in _sound_shapes:
        damaged += [name for name, value in fields.items() if not _is_sound(name, value) and name not in damaged]
        if not damaged and len(_sound_shapes) < _MOST_SHAPES:
            _sound_shapes.add(shape)
    for name in damaged:
        fields[name] = _EXPECTED.get(name, _OTHERS)[1]
    return damaged


def _is_sound(name: str, value: Any) -> bool:
    return isinstance(value, _EXPECTED.get(name, _OTHERS)[0]) and not isinstance(value, CorruptJson | bool)


def _corrupt_record(names: str) -> Condition:
    message = (
        f"the database holds a damaged record of this job (columns {names}); the job is not scheduled: cancel it and "
        "submit it again, or restore the database from a backup"
    )
    return Condition(PLATFORM_FAULT, True, "corrupt_record", message)
