"""Descriptors for work in threads."""

import os
import weakref
from collections.abc import Iterable
from types import TracebackType


class OwnDescriptors:
    """Duplicates of descriptors, for a thread: the owner of the originals may close them at any time.

    A number that was closed names the next file that opens. A thread with the original number would read that file.
    Create the duplicates where the owner cannot close the originals, before the thread starts. They are closed at the
    end of the `with` block, or with the object if the thread never starts.
    """

    def __init__(self, fds: Iterable[int]) -> None:
        """Duplicate descriptors.

        Raises:
            OSError: a descriptor is closed, or the process has too many.
        """
        opened = list[int]()
        self._close = weakref.finalize(self, _close_all, opened)
        opened.extend(map(os.dup, fds))
        self.numbers = tuple(opened)
        """The duplicates, in the order of the originals."""

    def __enter__(self) -> tuple[int, ...]:
        return self.numbers

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
