"""Planned faults that happen outside the ranks of a node: kill a process, or break a save or a transfer."""

import os
import signal
from collections.abc import Awaitable, Callable

from regroup.workers.agent.checkpoints.saver import SAVER_FAULTS, CheckpointSaver
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.transfer_faults import TRANSFER_FAULTS
from regroup.workers.contract.agent_records import AgentPids
from regroup.workers.contract.messages import FaultDue

_INJECTED_BY_AGENT = (*SAVER_FAULTS, *TRANSFER_FAULTS, "kill_zygote", "kill_agent")


class NodeFaults:
    """Injects faults of one node."""

    def __init__(
        self,
        pids: Callable[[], AgentPids],
        saver: CheckpointSaver,
        transfers: TransferEngine,
        authorize: Callable[[FaultDue], Awaitable[bool]],
    ) -> None:
        """Initialize the faults.

        Args:
            pids: returns the processes of the job on this node.
            saver: saver of checkpoints.
            transfers: engine of transfers.
            authorize: returns True if the supervisor approves a fault.
        """
        self._pids, self._saver, self._transfers, self._authorize = pids, saver, transfers, authorize

    def inject(self, do: str) -> None:
        """Inject a fault that does not happen inside a rank."""
        match do:
            case "kill_store" | "kill_zygote" | "kill_agent":
                if (victim := getattr(self._pids(), do.removeprefix("kill_"))) is not None:
                    os.kill(victim, signal.SIGKILL)
            case do if do in SAVER_FAULTS:
                self._saver.inject_next(do)
            case do if do in TRANSFER_FAULTS:
                self._transfers.faults.plan(do)
            case other:
                raise AssertionError(f"unknown fault {other!r}")

    async def decide(self, due: FaultDue) -> bool:
        """Return whether a fault that is due in a rank may happen. Inject it here if the rank cannot."""
        is_approved = await self._authorize(due)
        if is_approved and due.do in _INJECTED_BY_AGENT:
            self.inject(due.do)
        return is_approved
