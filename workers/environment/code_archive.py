"""A job's own code on this node: fetched by content address, kept for other jobs, unpacked once for this one.

The archive comes from a stranger and is unpacked by an agent that holds credentials, so it is read before anything is
written: plain files, folders and links inside only. Blocking.
"""

import contextlib
import hashlib
import os
import platform
import posixpath
import re
import tarfile
import tempfile
import time
import uuid
from pathlib import Path

from fsspec.core import url_to_fs

from regroup.workers.storage import fsspec_storage

DIRECTORY = "code"
"""Name of the folder of unpacked code in a job's scratch folder."""
_CHUNK_BYTES = 4 * 2**20
_KEPT_S = 7 * 86400.0
_ADDRESS = re.compile("sha256:([0-9a-f]{64})")


class CodeError(Exception):
    """The job's code cannot be had on this node, or is not what it should be."""


def node_cache() -> Path:
    """This node's folder of archives, shared by the jobs of one user and closed to others."""
    folder = Path(tempfile.gettempdir()) / f"regroup-code-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise CodeError(f"{folder} on node {platform.node()} belongs to somebody else: remove it, or set TMPDIR")
    return folder


def unpacked(archive: str, blob_uri: str, cache: Path, directory: Path) -> Path:
    """`directory` with the archive's content in it, which appears there whole or not at all; found if it is there.

    Args:
        archive: content address, `sha256:…`.
        cache: archives of this node; see `node_cache`.
        directory: the job's own; its ranks may write there.

    Raises:
        CodeError: this node does not reach the archive, it is damaged, or it holds what may not be unpacked.
    """
    if directory.is_dir():
        return directory
    draft = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}")
    try:
        with tarfile.open(fetched(archive, blob_uri, cache)) as tar:
            members = tar.getmembers()
            _refuse_unsafe(archive, members)
            tar.extractall(draft, members, filter="data")
        _refuse_links_outside(archive, draft)
        try:
            draft.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise
            # Another call was faster: an agent is asked to prepare when it is made, and again when it is needed.
    except (tarfile.TarError, OSError) as error:
        raise CodeError(f"{archive} cannot be unpacked on node {platform.node()} in {directory}: {error}") from error
    finally:
        fsspec_storage.remove_local(draft)
    return directory


def fetched(archive: str, blob_uri: str, cache: Path) -> Path:
    """The archive as a file of `cache`, verified now; what nobody fetched for a week is removed from there.

    Raises:
        CodeError: this node does not reach the archive, or it is damaged.
    """
    address = _ADDRESS.fullmatch(archive)
    if address is None:
        raise CodeError(f"{archive!r} is no content address, which is sha256: and 64 hexadecimal digits")
    _forget_unused(cache)
    file = cache / address[1]
    with contextlib.suppress(FileNotFoundError):
        if _digest(file) == address[1]:
            os.utime(file)
            return file
    draft = cache / f"{address[1]}.{uuid.uuid4().hex}"
    try:
        _download(f"{blob_uri.rstrip('/')}/sha256/{address[1]}", draft)
        if (digest := _digest(draft)) != address[1]:
            raise CodeError(f"{archive} is damaged in {blob_uri}: what node {platform.node()} got has sha256 {digest}")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def _download(uri: str, target: Path) -> None:
    try:
        fs, path = url_to_fs(uri, use_listings_cache=False)
        with fs.open(path, "rb") as reader, target.open("wb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                writer.write(chunk)
    except FileNotFoundError as error:
        advice = "start the server with a --blob-uri that every node reaches, such as s3://bucket/blobs"
        if fsspec_storage.local_path(uri) is None:
            advice = "it was removed, or the server uses another --blob-uri now: submit the job again with its code"
        raise CodeError(f"node {platform.node()} does not see the job's code at {uri}: {advice}") from error
    except Exception as error:  # each storage has classes of its own
        raise CodeError(
            f"node {platform.node()} cannot read the job's code at {uri}: {type(error).__name__}: {error}"
        ) from error


def _digest(file: Path) -> str:
    with file.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def _forget_unused(cache: Path) -> None:
    """Also what a dead agent left half-fetched."""
    for file in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another agent was faster
            if time.time() - file.stat().st_mtime > _KEPT_S:
                file.unlink()


def _refuse_unsafe(archive: str, members: list[tarfile.TarInfo]) -> None:
    """Nothing outside, nothing twice, nothing through a link: then no order of unpacking writes elsewhere."""
    seen: dict[str, tarfile.TarInfo] = {}
    for member in members:
        name = posixpath.normpath(member.name)
        if not (member.isreg() or member.isdir() or member.issym()):
            raise _unsafe(archive, member, "is neither file, folder nor symbolic link")
        if member.name.startswith("/") or name.split("/")[0] == "..":
            raise _unsafe(archive, member, "lies outside")
        if member.issym() and (
            member.linkname.startswith("/")
            or posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname)).split("/")[0] == ".."
        ):
            raise _unsafe(archive, member, f"leads outside, to {member.linkname}")
        if name in seen:
            raise _unsafe(archive, member, "is there twice")
        seen[name] = member
    for name, member in seen.items():
        above = posixpath.dirname(name)
        while above:
            if above in seen and not seen[above].isdir():
                raise _unsafe(archive, member, f"lies below {above}, which is no folder")
            above = posixpath.dirname(above)


def _refuse_links_outside(archive: str, directory: Path) -> None:
    """Links that lead outside only by way of other links."""
    root = Path(os.path.realpath(directory))
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder) / name for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):  # Path raises for loops
                raise CodeError(f"{archive} is refused: {path.relative_to(directory)} leads outside by other links")


def _unsafe(archive: str, member: tarfile.TarInfo, why: str) -> CodeError:
    return CodeError(f"{archive} is refused: {member.name!r} {why}")
