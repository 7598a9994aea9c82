"""A wall clock of some programs only, which a test can set while they run."""

import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).with_name("wall_clock.c")


class Clock:
    """Shows the true time until it is set. The C compiler builds it."""

    def __init__(self, folder: Path) -> None:
        self._library, self._file = folder / "clock.so", folder / "clock"
        command = ["g++", "-x", "c", "-shared", "-fPIC", "-O2", str(_SOURCE), "-o", str(self._library), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(struct.pack("<q", 0))

    def set(self, ahead_s: int) -> None:
        """Set the clock this far ahead of the true time, from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", ahead_s))

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Give this clock to all programs that are started in the block, and to their child processes."""
        before = dict(os.environ)
        ours: Mapping[str, str] = {"LD_PRELOAD": str(self._library), "HOUSE_CLOCK": str(self._file)}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del os.environ[name]
            os.environ.update(before)
