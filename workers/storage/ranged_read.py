"""Read parts of files in durable storage into memory. Blocking; threads may share a reader."""

import posixpath
import threading
from collections.abc import Sequence

from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.storage.readable_file import ReadableFile


class RangeReader:
    """Reads parts of the files below a URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._is_local = fsspec_storage.local_path(uri) is not None
        self._files: dict[str, ReadableFile] = {}
        self._lock = threading.Lock()

    def read_into(self, name: str, start: int, views: Sequence[memoryview]) -> None:
        """Fill views, one after the other, with the bytes of a file from `start` on.

        Raises:
            StorageError: The file is missing or ends too early.
            OSError: Storage did not answer.
        """
        place = self._place(name)
        try:
            done = self._opened(place).read_into(start, views) if self._is_local else _read_object(place, start, views)
        except FileNotFoundError as error:
            raise StorageError(f"{place} is named in the manifest but missing") from error
        if done < (needed := sum(len(view) for view in views)):
            raise StorageError(f"{place} is damaged: it ends {needed - done} bytes too early")

    def close(self) -> None:
        """Close the files. No read may run."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _place(self, name: str) -> str:
        """Return the URI of a file. `..` has no meaning in object storage."""
        scheme, separator, path = fsspec_storage.join(self._uri, name).rpartition("://")
        return f"{scheme}{separator}{posixpath.normpath(path)}"

    def _opened(self, place: str) -> ReadableFile:
        with self._lock:
            if place not in self._files:
                path = fsspec_storage.local_path(place)
                assert path is not None, "the folder is local"
                self._files[place] = ReadableFile(path)
            return self._files[place]


def _read_object(place: str, start: int, views: Sequence[memoryview]) -> int:
    fs, path = fsspec_storage.open_storage(place)
    data = memoryview(fs.cat_file(path, start=start, end=start + sum(len(view) for view in views)))
    done = 0
    for view in views:
        part = data[done : done + len(view)]
        view[: len(part)] = part
        done += len(part)
    return done
