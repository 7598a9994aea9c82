"""The order in which threads read a file: the kernel reads ahead only for a reader that continues where it stopped."""

import threading


class ReadOrder:
    """Lets threads read one after the other, in the order of their numbers. Their other work overlaps."""

    def __init__(self) -> None:
        """Initialize the order. Number 0 reads first."""
        self._next = 0
        self._done = set[int]()
        self._changed = threading.Condition()

    def turn(self, number: int) -> "Turn":
        """Return the turn of a number, counted from 0. Every number must take or leave its turn."""
        return Turn(self, number)

    def wait(self, number: int) -> None:
        """Wait until all smaller numbers have left their turns."""
        with self._changed:
            self._changed.wait_for(lambda: self._next >= number)

    def leave(self, number: int) -> None:
        """Let the next number read. A repeated call does nothing."""
        with self._changed:
            self._done.add(number)
            while self._next in self._done:
                self._done.remove(self._next)
                self._next += 1
            self._changed.notify_all()


class Turn:
    """The time at which one number may read."""

    def __init__(self, order: ReadOrder, number: int) -> None:
        """Initialize the turn of a number."""
        self._order, self._number = order, number

    def __enter__(self) -> None:
        self._order.wait(self._number)

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Let the next number read, also if this one read nothing."""
        self._order.leave(self._number)
