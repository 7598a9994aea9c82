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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regroup.service.blobs.limits import ArchiveLimits
from regroup.service.domain.errors import RegroupError
from regroup.service.local.data_marker import is_data_folder

IGNORE_FILE = ".regroupignore"
ALWAYS_IGNORED = (
    ".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "venv/", "node_modules/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".ipynb_checkpoints/", ".DS_Store",
)  # fmt: skip
"""Patterns that precede those of the ignore file. The ignore file can negate one: `!venv/`."""
_TIME_S = 315532800  # 1980: wheels and zip files cannot represent an earlier time
_SHOWN = 5
_LIMITS = ArchiveLimits()


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
    left_out: tuple[str, ...] = ()
    """Folders of regroup's own data that are not in the archive, relative to the packed folder."""

    @property
    def address(self) -> str:
        """Address for `code.archive` of a spec."""
        return f"sha256:{self.sha256}"


def pack(
    folder: Path,
    file: Path,
    limit_bytes: int | None = None,
    extra_folder: Path | None = None,
    data_folders: Collection[Path] = (),
) -> Archive:
    """Write the archive of `folder` to `file`.

    Args:
        folder: Folder to pack.
        file: File to write.
        limit_bytes: Largest size of the archive; None for no limit.
        extra_folder: Another folder, whose content is added.
        data_folders: Folders to leave out, in addition to those that a server marked as its own.

    Raises:
        ArchiveError: the archive would be empty or larger than the server accepts, a symbolic link leads outside, a
            file cannot be read, or both folders contain the same name.
    """
    tree = _Tree(folder, data_folders)
    entries = list(tree.entries())
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
    archive = replace(archive_of(file), left_out=tuple(tree.left_out))
    if limit_bytes is not None and archive.size_bytes > limit_bytes:
        raise _too_large(folder, entries, archive.size_bytes, limit_bytes)
    return archive


def archive_of(file: Path) -> Archive:
    """Return the checksum and the size of an existing archive."""
    with file.open("rb") as reader:
        return Archive(file, hashlib.file_digest(reader, "sha256").hexdigest(), file.stat().st_size)


class _Tree:
    """The entries of a folder in the archive's order, without ignored ones and without regroup's own data.

    Raises:
        ArchiveError: `folder` is not a folder, or is one of regroup's own.
    """

    def __init__(self, folder: Path, data_folders: Collection[Path] = ()) -> None:
        from pathspec import GitIgnoreSpec

        self.left_out: list[str] = []
        """Folders of regroup's own data, once the entries were listed."""
        self._root = folder.resolve()
        self._data_folders = {each.resolve() for each in data_folders}
        if not self._root.is_dir():
            raise ArchiveError(f"{folder} is not a folder: name the folder that contains the code")
        if self._is_data(self._root):
            raise ArchiveError(
                f"{folder} is a folder of regroup's own data (state directory, storage or archives): put the code, or "
                "the data, in another folder"
            )
        own = self._root / IGNORE_FILE
        lines = own.read_text(errors="replace").splitlines() if own.is_file() else []
        self._is_ignored: Callable[[str], bool] = GitIgnoreSpec.from_lines([*ALWAYS_IGNORED, *lines]).match_file

    def entries(self) -> Iterator[Entry]:
        """Yield the entries.

        Raises:
            ArchiveError: an entry cannot be archived, or there are too many.
        """
        counts: dict[str, int] = {}
        for number, entry in enumerate(self._below("", 1), 1):
            above = posixpath.dirname(entry.name)
            counts[above] = counts.get(above, 0) + 1
            if number > _LIMITS.members:
                most = max(counts, key=lambda name: counts[name])
                raise ArchiveError(
                    f"{self._root} has more than {_LIMITS.members} files and folders, the limit of an archive; "
                    f"{most or '.'}/ alone has {counts[most]}. List what the code does not need in {IGNORE_FILE}"
                )
            yield entry

    def _below(self, prefix: str, depth: int) -> Iterator[Entry]:
        try:
            names = sorted(os.listdir(self._root / prefix))
        except OSError as error:
            raise ArchiveError(
                f"{self._root / prefix} cannot be read: {error.strerror}; add it to {IGNORE_FILE}"
            ) from error
        for name in names:
            relative = prefix + name
            path = self._root / relative
            found = path.lstat()
            is_folder = stat.S_ISDIR(found.st_mode)
            if self._is_ignored(relative + "/" if is_folder else relative):
                continue
            if is_folder and self._is_data(path):
                self.left_out.append(relative)
                continue
            if depth > _LIMITS.depth or len(os.fsencode(relative)) > _LIMITS.path_bytes:
                raise ArchiveError(
                    f"{self._root / prefix} is too deep: an archive has paths of at most {_LIMITS.depth} names and "
                    f"{_LIMITS.path_bytes} bytes; add it to {IGNORE_FILE}"
                )
            if stat.S_ISLNK(found.st_mode):
                _check_link(self._root, relative)
            elif not is_folder and not stat.S_ISREG(found.st_mode):
                raise ArchiveError(f"{path} is not a file, folder or symbolic link: add it to {IGNORE_FILE}")
            yield Entry(relative, path, found.st_mode, found.st_size if stat.S_ISREG(found.st_mode) else 0)
            if is_folder:
                yield from self._below(relative + "/", depth + 1)

    def _is_data(self, folder: Path) -> bool:
        return is_data_folder(folder) or folder in self._data_folders


def _extra_entries(folder: Path, entries: Sequence[Entry], extra_folder: Path) -> list[Entry]:
    taken = {entry.name for entry in entries}
    more = list(_Tree(extra_folder).entries())
    if twice := sorted(taken & {entry.name for entry in more}):
        raise ArchiveError(f"{folder} contains {twice[0]}, but regroup needs this name: rename it")
    return more


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
