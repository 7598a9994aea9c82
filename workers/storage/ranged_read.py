"""Read parts of files in durable storage into memory. Blocking; threads may share a reader."""

import os
import posixpath
import threading
from collections.abc import Sequence

from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError


class RangeReader:
    """Reads parts of the files below a URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.is_local = fsspec_storage.local_path(uri) is not None
        """True if the kernel reads the files, and can read ahead."""
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()

    def read_into(self, name: str, start: int, views: Sequence[memoryview]) -> None:
        """Fill views, one after the other, with the bytes of a file from `start` on.

        Raises:
            StorageError: The file is missing or ends too early.
            OSError: Storage did not answer.
        """
        place = self._place(name)
        try:
            done = self._read_local(place, start, views) if self.is_local else _read_object(place, start, views)
        except FileNotFoundError as error:
            raise StorageError(f"{place} is named in the manifest but missing") from error
        if done < (needed := sum(len(view) for view in views)):
            raise StorageError(f"{place} is damaged: it ends {needed - done} bytes too early")

    def close(self) -> None:
        """Close the files. No read may run."""
        with self._lock:
            for fd in self._fds.values():
                os.close(fd)
            self._fds.clear()

    def _place(self, name: str) -> str:
        """Return the URI of a file. `..` has no meaning in object storage."""
        scheme, separator, path = fsspec_storage.join(self._uri, name).rpartition("://")
        return f"{scheme}{separator}{posixpath.normpath(path)}"

    def _read_local(self, place: str, start: int, views: Sequence[memoryview]) -> int:
        fd, done = self._opened(place), 0
        left = [view for view in views if view]
        while left:
            count = os.preadv(fd, left[: os.sysconf("SC_IOV_MAX")], start + done)
            if not count:
                break
            done += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = left[0][count:]
        return done

    def _opened(self, place: str) -> int:
        with self._lock:
            if place not in self._fds:
                path = fsspec_storage.local_path(place)
                assert path is not None, "the folder is local"
                self._fds[place] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return self._fds[place]


def _read_object(place: str, start: int, views: Sequence[memoryview]) -> int:
    fs, path = fsspec_storage.open_storage(place)
    data = memoryview(fs.cat_file(path, start=start, end=start + sum(len(view) for view in views)))
    done = 0
    for view in views:
        part = data[done : done + len(view)]
        view[: len(part)] = part
        done += len(part)
    return done
