"""Planned faults: each is injected at (rank or node, step, phase), once in the life of a job."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from regroup.workers.contract.messages import FaultDue, FaultGranted, Join, Message, Phase
from regroup.workers.contract.rank_config import FaultConfig, FaultPoint
from regroup.workers.rank.faults import network_faults, process_faults

_NOT_EVERY_STEP = (Phase.SNAPSHOT, Phase.CHECKPOINT)


class PlannedFaultError(Exception):
    """Raised by the fault `raise`, and by a fault that this node cannot inject."""


class Requests(Protocol):
    """The part of the channel that faults use."""

    def request(self, message: Message) -> tuple[Message, Sequence[int]]:
        """Send and wait for the reply."""
        ...


class Faults:
    """The planned faults that are still due on this rank."""

    def __init__(self, join: Join, actions: Mapping[str, Callable[[], None]] | None = None) -> None:
        """`actions`: faults that change data of this rank, by the name in the spec."""
        self._actions = actions or {}
        self._due = {
            index: fault
            for index, fault in enumerate(join.config.faults)
            if _is_on(fault.at, join) and index not in join.faults_fired
        }
        self._slowdown: process_faults.Slowdown | None = None

    def inject(self, step: int, phase: str, channel: Requests) -> None:
        """Inject the faults that are due here, after the agent has recorded and granted them.

        Raises:
            PlannedFaultError: the fault is `raise`, or this node cannot inject it.
        """
        if self._slowdown is not None and not self._slowdown.apply(step):
            self._slowdown = None
        for index, fault in list(self._due.items()):
            if not _is_due(fault.at, step, phase):
                continue
            del self._due[index]
            reply, _ = channel.request(FaultDue(index, fault.do))
            if isinstance(reply, FaultGranted) and reply.granted:
                self._act(index, fault, step, phase)

    def _act(self, index: int, fault: FaultConfig, step: int, phase: str) -> None:
        where = f"fault {index} of the spec: {fault.do} at step {step} in {phase}"
        match fault.do:
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sigstop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise PlannedFaultError(where)
            case "segfault":
                process_faults.segfault()
            case "abort":
                process_faults.abort()
            case "loop":
                process_faults.loop()
            case "sleep":
                process_faults.sleep(fault.duration_s)
            case "hold_gil":
                process_faults.block_gil(fault.duration_s)
            case "oom":
                _if_possible(where, process_faults.exhaust_memory)
            case "cut_traffic":
                network_faults.close_connections()
            case "lose_traffic":
                _if_possible(where, lambda: network_faults.drop_packets(fault.share or 0.0, fault.duration_s))
            case "slow":
                self._slowdown = process_faults.Slowdown(fault.factor or 1.0, until_step=step + (fault.steps or 0))
            case do if do in self._actions:
                try:
                    self._actions[do]()
                except LookupError as error:
                    raise PlannedFaultError(f"{where}: {error}") from error
            case _:
                pass  # the agent injects faults of other processes when it replies to FaultDue


def _if_possible(where: str, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        raise PlannedFaultError(f"{where}: not possible on this node: {error}") from error


def _is_on(at: FaultPoint, join: Join) -> bool:
    """Return True if the fault belongs to this rank. A fault of a node belongs to the node's first rank."""
    if at.node is not None:
        return at.node == join.node_rank and join.local_rank == 0
    return at.rank == join.rank


def _is_due(at: FaultPoint, step: int, phase: str) -> bool:
    # Not every step has a snapshot or a checkpoint: the fault waits for the next one.
    reached = step >= at.step if phase in _NOT_EVERY_STEP else step == at.step
    return reached and phase == at.phase
