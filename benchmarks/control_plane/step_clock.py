"""The steps of the simulated ranks of a job. Collectives keep real ranks together, and stop all of them with one."""

import time

STEP_S = 1.0


class StepClock:
    """Counts the committed steps of a generation."""

    def __init__(self) -> None:
        """Initialize the clock of ranks that are not formed."""
        self._generation, self.start_step = 0, 0
        self._begin_s, self._stopped_s = 0.0, 0.0

    def form(self, generation: int, start_step: int, wait_s: float) -> None:
        """Record that ranks of a generation train after `wait_s`. The last ones delay the first step of all others."""
        begin_s = time.monotonic() + wait_s
        if generation != self._generation:
            self._generation, self.start_step, self._begin_s = generation, start_step, begin_s
        self._begin_s, self._stopped_s = max(self._begin_s, begin_s), float("inf")

    def stop(self) -> None:
        """Stop with the death of a rank."""
        self._stopped_s = min(self._stopped_s, time.monotonic())

    @property
    def trained_s(self) -> float:
        """Seconds since the first step began; negative before it."""
        return min(time.monotonic(), self._stopped_s) - self._begin_s

    @property
    def done(self) -> int:
        """Number of steps that this generation has committed."""
        return max(0, int(self.trained_s / STEP_S))

    @property
    def step(self) -> int:
        """Newest committed step."""
        return self.start_step + self.done
