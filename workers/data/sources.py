"""Find the files that a spec names as data.

A source is a file, a folder, a glob or a URI that fsspec reads. A folder stands for all files below it with the given
suffixes, except hidden ones. A file that is named or matched by a glob may have any name.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from fsspec.core import url_to_fs

from regroup.workers.contract.error_classes import DataError

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
_BLOCK_BYTES = 16 << 20
_EDGE_BYTES = 64 << 10


@dataclass(frozen=True)
class SourceFile:
    """One data file, local or remote."""

    uri: str

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks that end at line ends.

        Raises:
            DataError: The file cannot be read.
        """
        fs, path = url_to_fs(self.uri)
        rest = b""
        try:
            with fs.open(path, "rb") as file:
                while block := cast(bytes, file.read(_BLOCK_BYTES)):
                    whole = rest + block
                    cut = whole.rfind(b"\n") + 1 or len(whole)
                    yield whole[:cut]
                    rest = whole[cut:]
        except OSError as error:
            raise DataError(f"data {self.uri!r} is not readable: {error.strerror or error}") from error
        if rest:
            yield rest


def find(source: str, suffixes: Sequence[str] = TEXT_SUFFIXES) -> list[SourceFile]:
    """Return the files of one source, sorted by URI.

    Raises:
        DataError: There are none, or the source cannot be listed.
    """
    try:
        fs, path = url_to_fs(source)
        if any(sign in path for sign in "*?["):
            paths = [found for found in cast(list[str], fs.glob(path)) if fs.isfile(found)]
        elif fs.isdir(path):
            paths = [
                found
                for found in cast(list[str], fs.find(path))
                if found.endswith(tuple(suffixes)) and not _is_hidden(found.removeprefix(path))
            ]
        else:
            paths = [path] if fs.exists(path) else []
        files = [SourceFile(str(fs.unstrip_protocol(found))) for found in paths]
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"data {source!r} is not readable: {error}") from error
    if not files:
        raise DataError(
            f"data {source!r} names no file on this node; give an existing file, a folder with "
            f"{', '.join(suffixes)} files, a glob or a URI"
        )
    return sorted(files, key=lambda file: file.uri)


def split(
    train: Sequence[str], validation: Sequence[str], suffixes: Sequence[str] = TEXT_SUFFIXES
) -> tuple[list[SourceFile], list[SourceFile]]:
    """Return the training files and the held-out files.

    Raises:
        DataError: A source is missing, or no training file is left.
    """
    held_out = _found(validation, suffixes)
    kept = [file for file in _found(train, suffixes) if file not in set(held_out)]
    if not kept:
        raise DataError(f"every file of train {list(train)} is held out by validation {list(validation)}")
    return kept, held_out


def _found(sources: Sequence[str], suffixes: Sequence[str]) -> list[SourceFile]:
    return sorted({file for source in sources for file in find(source, suffixes)}, key=lambda file: file.uri)


def mark(file: SourceFile) -> str:
    """Return a digest of size, start and end of a file: equal on nodes that see the same file.

    Raises:
        DataError: The file cannot be read.
    """
    fs, path = url_to_fs(file.uri)
    try:
        size = int(fs.size(path))
        digest = hashlib.sha256(cast(bytes, fs.cat_file(path, start=0, end=min(size, _EDGE_BYTES))))
        digest.update(cast(bytes, fs.cat_file(path, start=max(0, size - _EDGE_BYTES), end=size)))
    except OSError as error:
        raise DataError(f"data {file.uri!r} is not readable: {error.strerror or error}") from error
    return f"{size}:{digest.hexdigest()[:16]}"


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in relative.split("/"))
