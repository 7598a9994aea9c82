"""Rules for archives of code. The server checks them after an upload, and each node again before it unpacks.

An archive is not trusted, and the processes that unpack it have credentials. So all headers are read before anything is
written. An archive is a plain tar file, or one that gzip compressed. Only plain files, folders and links within it are
allowed.
"""

import gzip
import io
import posixpath
import tarfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 512
_MAX_READ_BYTES = 2**20
"""Largest read. tarfile reads long names and extended headers at once, with the size that the header states."""
_HEADER_BYTES = 4096
"""Space for the headers of one member."""
_COMPONENT_BYTES = 255
"""Longest name of one file in Linux file systems."""
_MAX_MTIME_S = 2**33
"""Latest modification time, in Unix seconds: the year 2242. Later ones overflow in calls of the system."""
_SHOWN = 80


class ArchiveRefused(Exception):
    """An archive that breaks a rule, or is damaged."""


@dataclass(frozen=True)
class ArchiveLimits:
    """Largest archive that a server or a node unpacks."""

    unpacked_bytes: int = 200 * 2**20
    """Size of all files together."""
    members: int = 20_000
    """Number of files, links and folders, with folders that are only part of a path."""
    path_bytes: int = 1024
    depth: int = 64
    """Number of names in a path."""

    @property
    def whole_bytes(self) -> int:
        """Largest size of a tar file with these members."""
        return self.unpacked_bytes + self.members * _HEADER_BYTES


def check_archive(file: IO[bytes], limits: ArchiveLimits) -> None:
    """Check the archive in a seekable file, without writing anything.

    Raises:
        ArchiveRefused: the archive breaks a rule, or is damaged.
        OSError: the file cannot be read.
    """
    with open_archive(file, limits):
        pass


@contextmanager
def open_archive(
    file: IO[bytes], limits: ArchiveLimits
) -> Generator[tuple[tarfile.TarFile, Sequence[tarfile.TarInfo]]]:
    """Open the archive in a seekable file, with its members, all of which are checked.

    Raises:
        ArchiveRefused: the archive breaks a rule, or is damaged.
        OSError: the file cannot be read.
    """
    tar, members = _opened(file, limits)
    try:
        yield tar, members
    finally:
        tar.close()


def _opened(file: IO[bytes], limits: ArchiveLimits) -> tuple[tarfile.TarFile, Sequence[tarfile.TarInfo]]:
    try:
        is_compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        content = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_compressed else file
        bounded = _BoundedFile(content, limits)
        # "r:" reads plain tar only. Other compressors need unbounded memory, or have no limit on their output.
        tar = tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:")  # noqa: SIM115
        members = _read_members(tar, limits)
        _check_end(tar, bounded, to_its_end=is_compressed)
        _check_names(members, limits)
        return tar, members
    except (ArchiveRefused, MemoryError):
        raise
    except RecursionError:  # each header that extends another one is a level
        raise ArchiveRefused("it has too many headers that extend each other: pack the folder again") from None
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(error) from error
        raise
    except Exception as error:  # tarfile and gzip raise errors of many classes for damaged input
        raise _damaged(error) from error


class _BoundedFile(io.RawIOBase):
    """The content of an archive, up to a limit. Positions above it are refused before they are decompressed."""

    def __init__(self, content: IO[bytes], limits: ArchiveLimits) -> None:
        super().__init__()
        self._content, self._limits = content, limits
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _MAX_READ_BYTES:
            raise ArchiveRefused(
                f"it has a header of {size} bytes; the limit is {_MAX_READ_BYTES} bytes: pack the folder again"
            )
        self._check(self._at + size)
        data = b""
        while len(data) < size and (more := self._content.read(size - len(data))):
            data += more
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if (offset, whence) == (0, io.SEEK_CUR):  # `tell` of the base class
            return self._at
        if whence != io.SEEK_SET or offset < 0:
            raise ArchiveRefused("it has a member with a negative size: pack the folder again")
        self._check(offset)
        self._at = self._content.seek(offset)
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _check(self, position: int) -> None:
        if position > self._limits.whole_bytes:
            raise _too_large(self._limits)


def _read_members(tar: tarfile.TarFile, limits: ArchiveLimits) -> list[tarfile.TarInfo]:
    """Read all headers, and stop at the first that breaks a rule."""
    found: list[tarfile.TarInfo] = []
    total_bytes, end = 0, -1
    while (member := tar.next()) is not None:
        if not (member.isreg() or member.isdir() or member.issym()) or member.sparse is not None:
            raise _refused(member, "is not a file, a folder or a symbolic link")
        if member.size < 0 or tar.offset <= end:
            raise _refused(member, "has a negative size")
        end = tar.offset
        total_bytes += member.size
        if total_bytes > limits.unpacked_bytes:
            raise _too_large(limits)
        found.append(member)
        if len(found) > limits.members:
            raise _too_many(limits)
    return found


def _check_end(tar: tarfile.TarFile, content: _BoundedFile, *, to_its_end: bool) -> None:
    """Refuse an archive whose reading stopped at a damaged header: tarfile takes that for its end.

    Args:
        tar: the archive, of which all headers were read.
        content: its content.
        to_its_end: read the rest, too, because a checksum follows.
    """
    content.seek(tar.offset)
    if content.read(_BLOCK_BYTES).strip(b"\0"):
        raise ArchiveRefused(f"it is damaged at byte {tar.offset}: pack the folder again")
    while to_its_end and content.read(_MAX_READ_BYTES):
        pass


def _check_names(members: Sequence[tarfile.TarInfo], limits: ArchiveLimits) -> None:
    """Refuse members outside the folder, duplicates, and members below links: then no order of unpacking is unsafe."""
    seen: dict[str, tarfile.TarInfo] = {}
    for member in members:
        name = posixpath.normpath(member.name)
        if member.name.startswith("/") or name.split("/")[0] == "..":
            raise _refused(member, "is outside the archive")
        if member.issym() and not member.linkname:
            raise _refused(member, "is a link without a target")
        if member.issym() and _leads_outside(name, member.linkname):
            raise _refused(member, f"is a link to {member.linkname[:_SHOWN]!r}, outside the archive")
        if name in seen:
            raise _refused(member, "is listed twice")
        if name == "." and not member.isdir():
            raise _refused(member, "has no name")
        if not 0 <= member.mtime < _MAX_MTIME_S:
            raise _refused(member, f"has an impossible modification time, {member.mtime}")
        _check_path(member, member.name, limits)
        if member.issym():
            _check_path(member, member.linkname, limits)
        seen[name] = member
    _check_folders(seen, limits)


def _check_folders(members: Mapping[str, tarfile.TarInfo], limits: ArchiveLimits) -> None:
    """Refuse members below links or files, and too many folders that are only part of a path."""
    checked: set[str] = set()
    count = len(members)
    for name in members:
        above = posixpath.dirname(name)
        while above and above not in checked:
            if above not in members:
                count += 1
            elif not members[above].isdir():
                raise _refused(members[name], f"is below {above[:_SHOWN]!r}, which is not a folder")
            if count > limits.members:
                raise _too_many(limits)
            checked.add(above)
            above = posixpath.dirname(above)


def _leads_outside(name: str, target: str) -> bool:
    lexical = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return target.startswith("/") or lexical.split("/")[0] == ".."


def _check_path(member: tarfile.TarInfo, path: str, limits: ArchiveLimits) -> None:
    if "\0" in path:
        raise _refused(member, "has a name with a NUL character")
    parts = path.split("/")
    size = len(path.encode("utf-8", "surrogateescape"))
    if size > limits.path_bytes:
        raise _refused(member, f"has a path of {size} bytes; the limit is {limits.path_bytes}")
    if len(parts) > limits.depth:
        raise _refused(member, f"has a path of {len(parts)} names; the limit is {limits.depth}")
    if any(len(part.encode("utf-8", "surrogateescape")) > _COMPONENT_BYTES for part in parts):
        raise _refused(member, f"has a name of more than {_COMPONENT_BYTES} bytes")


def _refused(member: tarfile.TarInfo, reason: str) -> ArchiveRefused:
    return ArchiveRefused(f"{member.name[:_SHOWN]!r} {reason}")


def _too_large(limits: ArchiveLimits) -> ArchiveRefused:
    return ArchiveRefused(
        f"it unpacks to more than the limit of {limits.unpacked_bytes / 2**20:.1f} MiB: list what the code does "
        "not need in .regroupignore, and put data in storage that the nodes can access"
    )


def _too_many(limits: ArchiveLimits) -> ArchiveRefused:
    return ArchiveRefused(
        f"it has more than {limits.members} files and folders, the limit: list what the code does not need in "
        ".regroupignore, and put data in storage that the nodes can access"
    )


def _damaged(error: Exception) -> ArchiveRefused:
    return ArchiveRefused(
        f"it is not a tar archive, plain or with gzip, or is damaged ({type(error).__name__}: {error})"
    )
