"""Files of a checkpoint that the host reads into its cache before it is known what its ranks need."""

import contextlib
import threading
from collections.abc import Sequence

from regroup.workers.os.node_facts import free_memory_bytes
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.storage.ranged_read import RangeReader

_PART_BYTES = 1 << 20


class ReadAhead:
    """Reads parts of local files in a thread."""

    def __init__(self, uri: str, parts: Sequence[tuple[str, int, int]]) -> None:
        """Start to read.

        It uses at most a quarter of the free memory. It ends at the first file that cannot be read: the read that needs
        this file reports that.

        Args:
            uri: Folder of the files.
            parts: file, first byte and number of bytes of each part, in the order in which ranks read them.
        """
        self._uri, self._parts = uri, parts
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-ahead", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all parts are read, or reading has ended before."""
        self._thread.join()

    def close(self) -> None:
        """Stop, and wait for the read in progress."""
        self._closing.set()
        self.wait()

    def _run(self) -> None:
        storage, scratch, left = RangeReader(self._uri), memoryview(bytearray(_PART_BYTES)), free_memory_bytes() // 4
        with contextlib.closing(storage), contextlib.suppress(OSError, StorageError):
            for name, first, size_bytes in self._parts:
                end = first + size_bytes
                for at in range(first, end, _PART_BYTES):
                    left -= _PART_BYTES
                    if left < 0 or self._closing.is_set():
                        return
                    storage.read_into(name, at, [scratch[: end - at]])
