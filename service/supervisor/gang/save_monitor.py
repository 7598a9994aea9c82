"""Progress of the checkpoint that is being written, over all nodes of a job. Training continues during the write."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from regroup.service.ports.sync import SaveStatus
from regroup.service.supervisor.gang.progress_text import add_up, describe
from regroup.service.supervisor.job_state.pace import Pace
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.storage_progress import StorageProgress

_SHOWN_AFTER_S = 2.0
"""Duration from which a save is shown. Most saves are shorter."""
_SHOWN_EVERY_S = 1.0


class SaveMonitor:
    """Adds up what the nodes report of one save at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Initialize without a save."""
        self._clock, self._pace = clock, Pace(_SHOWN_EVERY_S, clock)
        self._save: tuple[int, int] | None = None
        """Generation and step of the save that runs."""
        self._nodes: Sequence[str] = ()
        self._began_s = 0.0
        self._progress: dict[str, StorageProgress] = {}
        """Node → what it has written for that save."""
        self._shown: SaveStatus | None = None

    @contextmanager
    def follow(self, generation: int, step: int, nodes: Sequence[str]) -> Generator[None]:
        """Show the save that runs inside of this context."""
        self._save, self._nodes, self._began_s = (generation, step), nodes, self._clock()
        try:
            yield
        finally:
            self._save, self._shown = None, None
            self._progress.clear()

    def receive(self, report: AgentReport) -> None:
        """Record the progress in an agent's report, unless it belongs to another save."""
        found = report.save
        if found is not None and (found.generation, found.step) == self._save and report.node_id in self._nodes:
            self._progress[report.node_id] = found.progress

    def status(self) -> SaveStatus | None:
        """Return the progress as of the last second; None if there is nothing to show."""
        if self._save is None or not self._progress or self._clock() < self._began_s + _SHOWN_AFTER_S:
            return None
        if self._pace.is_due() or self._shown is None:
            whole, (generation, step) = add_up(self._progress.values()), self._save
            message = describe(f"writing checkpoint of step {step}", whole, len(self._progress), len(self._nodes))
            figures = whole.done_bytes, whole.total_bytes, whole.bytes_per_s
            self._shown = SaveStatus(step, generation, message, *figures)
        return self._shown
