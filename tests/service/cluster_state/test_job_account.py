"""The account of a job, aggregated from its events."""

from typing import Any

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.store.records import Event


def test_notes_are_counted_by_kind_and_some_update_further_metrics() -> None:
    account = JobAccount(None)  # type: ignore[arg-type]  # The row is not used.
    kinds: list[dict[str, Any]] = [
        {"kind": "loss_spike"}, {"kind": "stale"}, {"kind": "loss_spike"}, {"kind": "snapshot_damaged"},
        {"kind": "environment", "installed": True, "seconds": 3.0},
    ]  # fmt: skip
    for number, data in enumerate(kinds, 1):
        account.record(Event("j", number, "note", 0.0, 1, "supervisor", data))
    assert account.notes == {"loss_spike": 2, "stale": 1, "snapshot_damaged": 1, "environment": 1}
    assert account.snapshots_refused == {"checksum": 1} and account.install_seconds == [3.0]
    assert account.number == len(kinds)
