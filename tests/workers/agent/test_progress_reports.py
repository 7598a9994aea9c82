"""A report has the progress of a read or a write only if the supervisor does not know it."""

from regroup.workers.agent.progress_reports import ProgressReports
from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress

READ = StorageProgress(1, 9, 2.0)
SAVE = SaveProgress(1, 40, StorageProgress(3, 9, 2.0))


def test_only_changes_are_reported() -> None:
    reports = ProgressReports()
    assert reports.next_report(None, None) == (None, None)
    assert reports.next_report(READ, SAVE) == (READ, SAVE)
    reports.confirm()
    assert reports.next_report(READ, SAVE) == (None, None)
    further = SaveProgress(1, 40, StorageProgress(4, 9, 2.0))
    assert reports.next_report(READ, further) == (None, further)
    reports.confirm()
    assert reports.next_report(StorageProgress(9, 9, 2.0), further) == (StorageProgress(9, 9, 2.0), None)


def test_what_may_not_have_arrived_is_reported_again() -> None:
    reports = ProgressReports()
    reports.next_report(READ, SAVE)
    assert reports.next_report(READ, SAVE) == (READ, SAVE), "the report before failed"
    reports.confirm()
    reports.reset()
    assert reports.next_report(READ, SAVE) == (READ, SAVE), "a restarted supervisor has nothing"
