"""Columns of a job that the status of its supervisor changes, without an event. Pure."""

from collections.abc import Mapping
from typing import Any

from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.json_values import number, plain


def changes_of_status(job: JobRow, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a status changes. A job without devices has neither ranks nor a save."""
    changes: dict[str, Any] = {}
    goodput = number(status, "goodput")
    if goodput is not None and goodput != job.goodput:
        changes["goodput"] = goodput
    save = status.get("save", job.save) if job.state.has_allocations else None
    if save != job.save:
        changes["save"] = plain(save)
    ranks = status.get("ranks") if job.state.has_allocations else {}
    if ranks is not None and ranks != job.rank_phases:
        changes["rank_phases"] = plain(ranks)
    return changes
