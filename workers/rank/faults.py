"""Rehearsed failures: a fault strikes at (rank, step, phase), once in the life of a job."""

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from regroup.workers.contract import FaultDue, FaultGranted, Message, Phase

_NOT_EVERY_STEP = (Phase.SNAPSHOT, Phase.CHECKPOINT)


class PlannedFaultError(Exception):
    """What the fault `raise` raises."""


class Requests(Protocol):
    """The part of the channel that faults use."""

    def request(self, message: Message) -> tuple[Message, Sequence[int]]:
        """Send and wait for the reply."""
        ...


class Faults:
    """The faults of a job that may still strike this rank."""

    def __init__(self, planned: Sequence[Mapping[str, Any]], fired: Collection[int], rank: int) -> None:
        self._due = {
            index: fault for index, fault in enumerate(planned) if fault["at"]["rank"] == rank and index not in fired
        }

    def strike(self, step: int, phase: str, channel: Requests) -> None:
        """Carry out what is due here, after the agent recorded it and said yes.

        Raises:
            PlannedFaultError: the fault was to raise.
        """
        for index, fault in list(self._due.items()):
            if not _is_due(fault["at"], step, phase):
                continue
            del self._due[index]
            reply, _ = channel.request(FaultDue(index, fault["do"]))
            if isinstance(reply, FaultGranted) and reply.granted:
                _act(index, fault["do"], step, phase)


def _is_due(at: Mapping[str, Any], step: int, phase: str) -> bool:
    # Not every step has a snapshot or a checkpoint: there a fault waits for the next one.
    reached = step >= at["step"] if phase in _NOT_EVERY_STEP else step == at["step"]
    return reached and phase == at["phase"]


def _act(index: int, do: str, step: int, phase: str) -> None:
    match do:
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sigstop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise PlannedFaultError(f"fault {index} of the spec: raise at step {step} in {phase}")
        case _:
            pass  # what strikes another process is carried out by the agent when it grants
