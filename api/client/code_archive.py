"""A folder as an archive: the same content gives the same bytes, on every machine and at any time.

Sorted names, one owner, one time, two modes, and no compression, whose output differs between versions: so an address
says what the code is, and an upload that broke off goes on with an archive made anew.
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
"""Patterns before those of the ignore file, which may take one back: `!venv/`."""
_TIME_S = 315532800  # 1980: wheels and zip files know no earlier time
_SHOWN = 5
_CHUNK_BYTES = 4 * 2**20


class ArchiveError(RegroupError):
    """The folder cannot travel as it is."""


@dataclass(frozen=True)
class Entry:
    """One file, folder or symbolic link of the tree."""

    name: str
    """Relative to the folder, with slashes."""
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
        """As a spec names it: `code.archive`."""
        return f"sha256:{self.sha256}"


def pack(folder: Path, file: Path, limit_bytes: int | None = None, extra_folder: Path | None = None) -> Archive:
    """Write the archive of `folder` to `file`.

    Args:
        also: another folder, whose content is put beside that of `folder`.

    Raises:
        ArchiveError: there is nothing to pack, it would be larger than `limit_bytes`, a symbolic link leads outside,
            something cannot be read, or `also` has a name of `folder`.
    """
    entries = list(list_entries(folder))
    if extra_folder is not None:
        entries += _extra_entries(folder, entries, extra_folder)
    if not any(stat.S_ISREG(entry.mode) for entry in entries):
        raise ArchiveError(f"{folder} holds no file to send, or {IGNORE_FILE} leaves none of them")
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
    """An archive that is there already."""
    with file.open("rb") as reader:
        return Archive(file, hashlib.file_digest(reader, "sha256").hexdigest(), file.stat().st_size)


def list_entries(folder: Path) -> Iterator[Entry]:
    """What belongs to `folder`, in the archive's order; nothing below an ignored folder is looked at.

    Raises:
        ArchiveError: `folder` is none, or holds what cannot travel.
    """
    from pathspec import GitIgnoreSpec

    root = folder.resolve()
    if not root.is_dir():
        raise ArchiveError(f"{folder} is not a folder: name the one that holds the code")
    own = root / IGNORE_FILE
    lines = own.read_text(errors="replace").splitlines() if own.is_file() else []
    ignored = GitIgnoreSpec.from_lines([*ALWAYS_IGNORED, *lines])
    yield from _below(root, "", ignored.match_file)


def _extra_entries(folder: Path, entries: list[Entry], extra_folder: Path) -> list[Entry]:
    taken = {entry.name for entry in entries}
    more = list(list_entries(extra_folder))
    if twice := sorted(taken & {entry.name for entry in more}):
        raise ArchiveError(f"{folder} has a {twice[0]} of its own, and that name is needed here: rename it")
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
            raise ArchiveError(f"{path} is neither file, folder nor symbolic link: add it to {IGNORE_FILE}")
        yield Entry(relative, path, found.st_mode, found.st_size if stat.S_ISREG(found.st_mode) else 0)
        if is_folder:
            yield from _below(root, relative + "/", is_ignored)


def _check_link(root: Path, name: str) -> None:
    target = os.readlink(root / name)
    lexical = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    outside = posixpath.isabs(target) or lexical.split("/")[0] == ".."
    if outside or not Path(os.path.realpath(root / name)).is_relative_to(root):  # Path.resolve raises for loops
        raise ArchiveError(
            f"{root / name} is a symbolic link to {target}, which leads out of the folder or is absolute: no node has "
            f"what it points to; put a copy in its place, or add it to {IGNORE_FILE}"
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
    """Before anything is written: somebody may have named a folder of a terabyte."""
    total = sum(512 + -(-entry.size_bytes // 512) * 512 for entry in entries)
    if limit_bytes is not None and total > limit_bytes:
        raise _too_large(folder, entries, total, limit_bytes)


def _too_large(folder: Path, entries: list[Entry], size_bytes: int, limit_bytes: int) -> ArchiveError:
    return ArchiveError(
        f"{folder} makes an archive of {format_mebibytes(size_bytes)}; the server accepts "
        f"{format_mebibytes(limit_bytes)}. Largest: {', '.join(_largest(entries))}. List what the code does not need "
        f"in {IGNORE_FILE}, and put data in storage that the nodes can access"
    )


def _largest(entries: list[Entry]) -> list[str]:
    """The largest files, and the folders that are large by many small ones."""
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
    """For people, e.g. `1.5 MiB`."""
    return f"{size_bytes / 2**20:.1f} MiB"
