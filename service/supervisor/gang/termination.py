"""The time between SIGTERM and SIGKILL at a planned end: ranks may save their work and end by themselves.

A generation that failed gets no such time. Its ranks wait for each other, and the recovery waits for their death.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection

from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.gang import CALL_TIMEOUT_S, Gang
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.workers.contract.agent_api import AgentApi

_POLL_S = 0.5


class Termination:
    """Requests that ranks end, and waits for it. Each generation gets one request."""

    def __init__(self, gang: Gang, log: EventLog, silent_nodes: Callable[[], Collection[str]]) -> None:
        """Initialize. `silent_nodes`: returns the nodes of lost agents."""
        self._gang, self._log, self._silent_nodes = gang, log, silent_nodes
        self._requested: set[int] = set()
        """Generations whose ranks got the request from this supervisor. An agent ignores a repetition."""
        self._requests: set[asyncio.Task[None]] = set()

    def begin(self, monitor: GenerationMonitor, time_s: float, why: str) -> None:
        """Send SIGTERM to all ranks. Those that are alive after `time_s` are to be killed.

        A second call can only shorten the time.
        """
        killed_at_s, number = time.monotonic() + time_s, monitor.generation.number
        monitor.killed_at_s = min(monitor.killed_at_s or killed_at_s, killed_at_s)
        if number in self._requested:
            return
        self._requested.add(number)
        message = f"{why}: the ranks got SIGTERM and have {time_s:.0f} s to end"
        self._log.emit_termination(number, message, is_over=False)
        request = asyncio.get_running_loop().create_task(self._request(number))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    def is_over(self, monitor: GenerationMonitor) -> bool:
        """Return whether all ranks have ended, or their time has. Report the end once."""
        if monitor.killed_at_s is None:
            return False
        if monitor.running and time.monotonic() < monitor.killed_at_s:
            return False
        if not monitor.is_termination_reported:
            monitor.is_termination_reported = True
            self._log.emit_termination(monitor.generation.number, _outcome(monitor), is_over=True)
        return True

    async def run(self, monitor: GenerationMonitor, grace_s: float, why: str) -> None:
        """Send SIGTERM to all ranks, and wait until all have ended, at most `grace_s`."""
        self.begin(monitor, grace_s, why)
        while not self.is_over(monitor):
            monitor.changed.clear()
            for node in self._silent_nodes():
                monitor.record_loss(node, time.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await monitor.changed.wait()

    async def _request(self, generation: int) -> None:
        async def one(agent: AgentApi) -> None:
            with contextlib.suppress(AgentError, AgentLostError):  # ranks there are killed when the time has passed
                await agent.terminate_ranks(generation)

        agents = [self._gang.agents.agent(node, timeout_s=CALL_TIMEOUT_S) for node in self._gang.configs]
        await asyncio.gather(*(one(agent) for agent in agents))


def _outcome(monitor: GenerationMonitor) -> str:
    size, running = len(monitor.generation.ranks), sorted(monitor.running)
    if not running:
        return f"all {size} ranks ended after SIGTERM"
    which = f"rank {running[0]}" if len(running) == 1 else f"{len(running)} of {size} ranks"
    return f"{which} did not end in time after SIGTERM and got SIGKILL"
