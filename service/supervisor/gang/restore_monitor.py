"""Progress of a restore from a checkpoint, over all nodes of a job."""

from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.pace import Pace
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.messages import AgentReport
from regroup.workers.contract.restore_progress import RestoreProgress

_SHOWN_EVERY_S = 1.0
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class RestoreMonitor:
    """Shows the progress as the phase of the job, until all ranks have their state."""

    def __init__(self, state: SupervisorState, pace: Pace | None = None) -> None:
        self._state, self._pace = state, pace or Pace(_SHOWN_EVERY_S)
        self._generation = 0
        self._nodes: dict[str, RestoreProgress] = {}
        """Node → newest progress of that generation."""
        self._shown: RestoreProgress | None = None

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
        whole = RestoreProgress(
            sum(each.done_bytes for each in found),
            sum(each.total_bytes for each in found),
            sum(each.bytes_per_s for each in found if each.done_bytes < each.total_bytes),
        )
        if whole != self._shown:
            self._shown = whole
            self._state.show_restore(whole, describe(whole, len(found), len(generation.nodes)), generation.number)


def describe(whole: RestoreProgress, reporting: int, nodes: int) -> str:
    """Return the progress for people.

    Args:
        whole: sums over the nodes that report.
        reporting: number of nodes that report.
        nodes: number of all nodes.
    """
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if whole.total_bytes >= scale), _UNITS[-1])
    text = f"{whole.done_bytes / scale:.1f} of {whole.total_bytes / scale:.1f} {unit}, {_rate(whole.bytes_per_s)}"
    others = f" ({reporting} of {nodes} nodes have begun)" if reporting < nodes else ""
    return f"restoring state from checkpoint: {text}{others}"


def _rate(bytes_per_s: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if bytes_per_s >= scale), _UNITS[-1])
    return f"{bytes_per_s / scale:.3g} {unit}/s"
