"""Restart check of one rank: the first generation ends early by plan, and the next one repeats two of its steps.

The first generation takes a snapshot of step 2 and none of the steps 3 and 4. It ends after step 4. So the next
generation starts from the snapshot of step 2. Both send digests of their whole state after the steps 3 and 4, which
the supervisor compares. A difference proves that a restore loses state.
"""

from collections.abc import Callable

from regroup.workers.contract import messages
from regroup.workers.contract.error_classes import InputError
from regroup.workers.contract.restart_check import COMPARED_STEPS, SAVED_STEP
from regroup.workers.rank.ports import ChannelPort
from regroup.workers.state.state_digest import digest_parts
from regroup.workers.state.training_state import TrainingState


class RestartCheck:
    """The part of one rank in one generation."""

    def __init__(self, join: messages.Join, channel: ChannelPort) -> None:
        self._join, self._channel = join, channel
        self._is_on = join.config.verifies_restart
        self._is_first = join.restore.source == "none"

    def check_steps(self, last_step: int | None) -> None:
        """Check that the job has steps after those that the check compares.

        Raises:
            InputError: it has too few.
        """
        if self._is_on and last_step is not None and last_step <= max(COMPARED_STEPS):
            raise InputError(
                f"recovery.verify needs more than {max(COMPARED_STEPS)} steps, and the function has {last_step}: train "
                "longer, or set it to off"
            )

    def is_due(self, step: int) -> bool:
        """Return True if the check needs a snapshot of this step."""
        return self._is_on and self._is_first and step == SAVED_STEP

    def is_suppressed(self, step: int) -> bool:
        """Return True if a snapshot of this step would replace the one that the next generation must start from."""
        return self._is_on and self._is_first and SAVED_STEP < step <= max(COMPARED_STEPS)

    def send_digest(self, step: int, state: Callable[[], TrainingState]) -> None:
        """Send the digest of the state after `step` if the supervisor compares it."""
        starts_here = self._is_first or self._join.restore.step == SAVED_STEP
        if self._is_on and starts_here and step in COMPARED_STEPS:
            place = self._join.rank, self._join.generation
            self._channel.send(messages.StateDigest(*place, step, digest_parts(state().capture(step))))

    def is_end(self, step: int) -> bool:
        """Return True if this generation ends after `step`, on every rank."""
        return self._is_on and self._is_first and step == max(COMPARED_STEPS)
