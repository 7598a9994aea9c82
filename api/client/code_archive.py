"""Reproducible archives of folders: the same content gives the same bytes, on every machine and at any time.

An archive has sorted names, one owner, one time and two modes. It is not compressed, because the output of compressors
differs between versions. Therefore an address identifies the code, and an interrupted upload can resume with an archive
that was packed again.
"""

import hashlib
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regroup.service.domain.errors import RegroupError

IGNORE_FILE = ".regroupignore"
ALWAYS_IGNORED = (
    ".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "venv/", "node_modules/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".ipynb_checkpoints/", ".DS_Store",
)  # fmt: skip
"""Patterns that precede those of the ignore file. The ignore file can negate one: `!venv/`."""
_TIME_S = 315532800  # 1980: wheels and zip files cannot represent an earlier time
_SHOWN = 5
_CHUNK_BYTES = 4 * 2**20


class ArchiveError(RegroupError):
    """The folder cannot be archived in its current form."""


@dataclass(frozen=True)
class Entry:
    """One file, folder or symbolic link of the tree."""

    name: str
    """Path relative to the folder, with slashes."""
    path: Path
    mode: int
    size_bytes: int


@dataclass(frozen=True)
class Archive:
    """A packed folder."""

    file: Path
    sha256: str
    size_bytes: int

    @property
    def address(self) -> str:
        """Address for `code.archive` of a spec."""
        return f"sha256:{self.sha256}"


def pack(folder: Path, file: Path, limit_bytes: int | None = None, extra_folder: Path | None = None) -> Archive:
    """Write the archive of `folder` to `file`.

    Args:
        folder: Folder to pack.
        file: File to write.
        limit_bytes: Largest size of the archive; None for no limit.
        extra_folder: Another folder, whose content is added.

    Raises:
        ArchiveError: the archive would be empty or larger than `limit_bytes`, a symbolic link leads outside, a file
            cannot be read, or both folders contain the same name.
    """
    entries = list(list_entries(folder))
    if extra_folder is not None:
        entries += _extra_entries(folder, entries, extra_folder)
    if not any(stat.S_ISREG(entry.mode) for entry in entries):
        raise ArchiveError(f"{folder} contains no file to upload, or {IGNORE_FILE} excludes all of them")
    _check_size(folder, entries, limit_bytes)
    try:
        with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
            for entry in entries:
                _add(tar, entry)
    except OSError as error:
        raise ArchiveError(f"{folder} cannot be packed: {error}") from error
    archive = archive_of(file)
    if limit_bytes is not None and archive.size_bytes > limit_bytes:
        raise _too_large(folder, entries, archive.size_bytes, limit_bytes)
    return archive


def archive_of(file: Path) -> Archive:
    """Return the checksum and the size of an existing archive."""
    with file.open("rb") as reader:
        return Archive(file, hashlib.file_digest(reader, "sha256").hexdigest(), file.stat().st_size)


def list_entries(folder: Path) -> Iterator[Entry]:
    """List the entries of `folder` in the archive's order, without those below ignored folders.

    Raises:
        ArchiveError: `folder` is not a folder, or contains an entry that cannot be archived.
    """
    from pathspec import GitIgnoreSpec

    root = folder.resolve()
    if not root.is_dir():
        raise ArchiveError(f"{folder} is not a folder: name the folder that contains the code")
    own = root / IGNORE_FILE
    lines = own.read_text(errors="replace").splitlines() if own.is_file() else []
    ignored = GitIgnoreSpec.from_lines([*ALWAYS_IGNORED, *lines])
    yield from _below(root, "", ignored.match_file)


def _extra_entries(folder: Path, entries: list[Entry], extra_folder: Path) -> list[Entry]:
    taken = {entry.name for entry in entries}
    more = list(list_entries(extra_folder))
    if twice := sorted(taken & {entry.name for entry in more}):
        raise ArchiveError(f"{folder} contains {twice[0]}, but regroup needs this name: rename it")
    return more


def _below(root: Path, prefix: str, is_ignored: Callable[[str], bool]) -> Iterator[Entry]:
    try:
        names = sorted(os.listdir(root / prefix))
    except OSError as error:
        raise ArchiveError(f"{root / prefix} cannot be read: {error.strerror}; add it to {IGNORE_FILE}") from error
    for name in names:
        relative = prefix + name
        path = root / relative
        found = path.lstat()
        is_folder = stat.S_ISDIR(found.st_mode)
        if is_ignored(relative + "/" if is_folder else relative):
            continue
        if stat.S_ISLNK(found.st_mode):
            _check_link(root, relative)
        elif not is_folder and not stat.S_ISREG(found.st_mode):
            raise ArchiveError(f"{path} is not a file, folder or symbolic link: add it to {IGNORE_FILE}")
        yield Entry(relative, path, found.st_mode, found.st_size if stat.S_ISREG(found.st_mode) else 0)
        if is_folder:
            yield from _below(root, relative + "/", is_ignored)


def _check_link(root: Path, name: str) -> None:
    target = os.readlink(root / name)
    lexical = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    outside = posixpath.isabs(target) or lexical.split("/")[0] == ".."
    if outside or not Path(os.path.realpath(root / name)).is_relative_to(root):  # Path.resolve raises for loops
        raise ArchiveError(
            f"{root / name} is a symbolic link to {target}, which is absolute or outside of the folder. The target "
            f"does not exist on the nodes: replace the link with a copy, or add it to {IGNORE_FILE}"
        )


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mtime = _TIME_S
    member.mode = 0o755 if stat.S_ISDIR(entry.mode) or entry.mode & stat.S_IXUSR else 0o644
    if stat.S_ISDIR(entry.mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(entry.mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(entry.path), 0o777
        tar.addfile(member)
    else:
        member.size = entry.size_bytes
        with entry.path.open("rb") as reader:
            tar.addfile(member, reader)


def _check_size(folder: Path, entries: list[Entry], limit_bytes: int | None) -> None:
    """Check the size before anything is written, because the folder may be very large."""
    total = sum(512 + -(-entry.size_bytes // 512) * 512 for entry in entries)
    if limit_bytes is not None and total > limit_bytes:
        raise _too_large(folder, entries, total, limit_bytes)


def _too_large(folder: Path, entries: list[Entry], size_bytes: int, limit_bytes: int) -> ArchiveError:
    return ArchiveError(
        f"the archive of {folder} has {format_mebibytes(size_bytes)}; the server accepts "
        f"{format_mebibytes(limit_bytes)}. Largest: {', '.join(_largest(entries))}. List what the code does not need "
        f"in {IGNORE_FILE}, and put data in storage that the nodes can access"
    )


def _largest(entries: list[Entry]) -> list[str]:
    """Describe the largest files, and the folders that are large because of many small files."""
    sizes: dict[str, int] = {}
    files_below: dict[str, int] = {}
    for entry in entries:
        if entry.size_bytes:
            sizes[entry.name] = entry.size_bytes
            if above := posixpath.dirname(entry.name):
                files_below[above] = files_below.get(above, 0) + entry.size_bytes
    top = dict(sorted(sizes.items(), key=lambda item: -item[1])[:_SHOWN])
    for folder, size in files_below.items():
        if size > 2 * max((size for name, size in top.items() if posixpath.dirname(name) == folder), default=0):
            top[folder + "/"] = size
    shown = sorted(top.items(), key=lambda item: -item[1])[:_SHOWN]
    return [f"{name} ({format_mebibytes(size)})" for name, size in shown]


def format_mebibytes(size_bytes: int) -> str:
    """Format a size for people, e.g. `1.5 MiB`."""
    return f"{size_bytes / 2**20:.1f} MiB"
