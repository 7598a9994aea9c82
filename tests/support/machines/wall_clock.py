"""A wall clock for some programs alone, to be set while they run."""

import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).with_name("wall_clock.c")


class Clock:
    """It is true until it is set. Made by the C compiler."""

    def __init__(self, folder: Path) -> None:
        self._library, self._file = folder / "clock.so", folder / "clock"
        command = ["g++", "-x", "c", "-shared", "-fPIC", "-O2", str(_SOURCE), "-o", str(self._library), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(struct.pack("<q", 0))

    def set(self, ahead_s: int) -> None:
        """So much ahead of the true time, from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", ahead_s))

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Programs that are started meanwhile have this clock, and all that those start."""
        before = dict(os.environ)
        ours: Mapping[str, str] = {"LD_PRELOAD": str(self._library), "HOUSE_CLOCK": str(self._file)}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del os.environ[name]
            os.environ.update(before)
