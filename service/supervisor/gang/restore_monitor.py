"""Progress of a restore from a checkpoint, over all nodes of a job."""

from regroup.service.supervisor.gang.progress_text import add_up, describe
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.pace import Pace
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.storage_progress import StorageProgress

_SHOWN_EVERY_S = 1.0


class RestoreMonitor:
    """Shows the progress as the phase of the job, until all ranks have their state."""

    def __init__(self, state: SupervisorState, pace: Pace | None = None) -> None:
        self._state, self._pace = state, pace or Pace(_SHOWN_EVERY_S)
        self._generation = 0
        self._nodes: dict[str, StorageProgress] = {}
        """Node → newest progress of that generation."""
        self._shown: StorageProgress | None = None

    def receive(self, report: AgentReport) -> None:
        """Record the progress in an agent's report."""
        if report.restore is None or report.generation < self._generation:
            return
        if report.generation > self._generation:
            self._generation, self._shown = report.generation, None
            self._nodes.clear()
        self._nodes[report.node_id] = report.restore

    def poll(self, monitor: GenerationMonitor) -> None:
        """Show what has changed, at most once per second."""
        generation = monitor.generation
        if generation.number != self._generation or len(monitor.restored) == len(generation.ranks):
            return
        found = [self._nodes[node] for node in generation.nodes if node in self._nodes]
        if not found or not self._pace.is_due():
            return
        whole = add_up(found)
        if whole != self._shown:
            self._shown = whole
            message = describe("restoring state from checkpoint", whole, len(found), len(generation.nodes))
            self._state.show_restore(whole, message, generation.number)
