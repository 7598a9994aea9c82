"""The fence of a node: it obeys the highest generation so far, and refuses calls of older ones."""

from collections.abc import Callable


class StaleGeneration(Exception):
    """The call names an older generation than this node serves."""


class GenerationFence:
    """Refuses and counts calls of older generations."""

    def __init__(self, on_refused: Callable[[int, int], None]) -> None:
        """Initialize the fence. `on_refused` gets the generation of each refused call, and the number of such calls."""
        self.generation = 0
        self.stale_calls = 0
        self._on_refused = on_refused

    def accept(self, generation: int) -> None:
        """Obey a generation from now on.

        Raises:
            StaleGeneration: it is older than the present one.
        """
        self.check(generation)
        self.generation = generation

    def check(self, generation: int, *, is_next: bool = False) -> None:
        """Check the generation of a call that changes nothing for the present one. `is_next`: it must be a later one.

        Raises:
            StaleGeneration: it is older.
        """
        if generation < self.generation + is_next:
            self.stale_calls += 1
            self._on_refused(generation, self.stale_calls)
            raise StaleGeneration(f"stale request for generation {generation} (current: {self.generation})")
