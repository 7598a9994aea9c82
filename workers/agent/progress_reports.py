"""Progress of reads and writes of durable storage in reports: only if it has changed since the last one."""

from regroup.workers.contract.storage_progress import SaveProgress, StorageProgress


class ProgressReports:
    """Remembers which progress the supervisor knows."""

    def __init__(self) -> None:
        self._delivered: tuple[StorageProgress | None, SaveProgress | None] = (None, None)
        self._sent = self._delivered

    def next_report(
        self, restore: StorageProgress | None, save: SaveProgress | None
    ) -> tuple[StorageProgress | None, SaveProgress | None]:
        """Return both for the next report, each as None if the supervisor knows it."""
        self._sent = restore, save
        old_restore, old_save = self._delivered
        return restore if restore != old_restore else None, save if save != old_save else None

    def confirm(self) -> None:
        """Record that the supervisor has the last report."""
        self._delivered = self._sent

    def reset(self) -> None:
        """Send everything again: the supervisor has nothing."""
        self._delivered = None, None
