"""Planned faults of a transfer, on the side that sends."""

import os
import signal

TRANSFER_FAULTS = ("corrupt_transfer", "kill_agent_in_transfer")


class TransferFaults:
    """Faults that the next chunks of recovery transfers get. Mirrors get none."""

    def __init__(self) -> None:
        self._planned = list[str]()

    def plan(self, do: str) -> None:
        """Inject one of `TRANSFER_FAULTS` into the next chunk. Two calls inject into the next two chunks."""
        self._planned.append(do)

    def pop_damage(self) -> bool:
        """Return True if the next chunk is to be damaged. Each planned fault counts once."""
        if "corrupt_transfer" not in self._planned:
            return False
        self._planned.remove("corrupt_transfer")
        return True

    def end_process(self) -> None:
        """Kill this process, the agent, if that is planned. The peer has got the head of a chunk and no byte of it."""
        if "kill_agent_in_transfer" in self._planned:
            os.kill(os.getpid(), signal.SIGKILL)
