"""A job's own code on this node: fetched by content address, cached for other jobs, unpacked once for this job.

The archive is not trusted, and the agent that unpacks it has credentials. So the agent checks all members before it
writes one (`workers/contract/archive_rules.py`), as the server did. Blocking.
"""

import contextlib
import hashlib
import os
import platform
import re
import tarfile
import tempfile
import time
import uuid
import zlib
from pathlib import Path

from fsspec.core import url_to_fs

from regroup.workers.contract.archive_rules import ArchiveLimits, ArchiveRefused, open_archive
from regroup.workers.contract.storage_uri import checked_uri
from regroup.workers.os import job_files
from regroup.workers.storage import fsspec_storage

DIRECTORY = "code"
"""Name of the folder of unpacked code in a job's scratch folder."""
_CHUNK_BYTES = 4 * 2**20
_UNUSED_S = 7 * 86400.0
_CACHE_BYTES = 4 * 2**30
"""Most bytes of the archives of a node. Those used last stay."""
_IN_USE_S = 600.0
"""Time after its last use for which an archive is not removed: an agent may still open it."""
_LIMITS = ArchiveLimits()
_ADDRESS = re.compile("sha256:([0-9a-f]{64})")


class CodeError(Exception):
    """Code of a job that this node cannot fetch, or that is damaged or unsafe."""


def node_cache() -> Path:
    """Return this node's folder of archives, which the jobs of one user share and no other user can open.

    Raises:
        CodeError: The folder belongs to another user.
    """
    folder = Path(tempfile.gettempdir()) / f"regroup-code-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise CodeError(
            f"{folder} on node {platform.node()} is a link or belongs to another user: remove it, or set TMPDIR"
        )
    return folder


def unpack(
    archive: str,
    blob_uri: str,
    cache: Path,
    directory: Path,
    limits: ArchiveLimits = _LIMITS,
    user: int | None = None,
) -> Path:
    """Return `directory` with the contents of the archive. It appears complete or not at all, and is never replaced.

    Args:
        archive: Content address, `sha256:…`.
        blob_uri: Folder of blobs in durable storage.
        cache: Archives of this node; see `node_cache`.
        directory: Folder of the job. Its ranks may write there.
        limits: Largest archive to unpack.
        user: User that gets the folder; None: that of this process.

    Raises:
        CodeError: This node cannot read the archive, or the archive is damaged, unsafe or too large.
    """
    if directory.is_dir():
        return directory
    draft = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}")
    try:
        with (
            fetch(archive, blob_uri, cache, limits).open("rb") as file,
            open_archive(file, limits) as (tar, members),
        ):
            draft.mkdir(parents=True)  # an archive may be empty
            tar.extractall(draft, members, filter="data")
        _refuse_links_outside(archive, draft)
        job_files.assign_tree(draft, user)
        try:
            draft.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise
            # Another call was faster: an agent prepares at its start, and again on request.
    except ArchiveRefused as error:
        raise CodeError(f"{archive} is refused: {error}") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise CodeError(f"{archive} cannot be unpacked on node {platform.node()} in {directory}: {error}") from error
    finally:
        fsspec_storage.remove_local(draft)
    return directory


def fetch(archive: str, blob_uri: str, cache: Path, limits: ArchiveLimits = _LIMITS) -> Path:
    """Return the archive as a file of `cache`, and verify it. Remove archives that the cache need not keep.

    Raises:
        CodeError: This node cannot read the archive, or the archive is damaged or too large.
    """
    address = _ADDRESS.fullmatch(archive)
    if address is None:
        raise CodeError(f"{archive!r} is not a content address: expected sha256: and 64 hexadecimal digits")
    _remove_old(cache)
    file = cache / address[1]
    with contextlib.suppress(FileNotFoundError):
        if _digest(file) == address[1]:
            os.utime(file)
            return file
    draft = cache / f"{address[1]}.{uuid.uuid4().hex}"
    try:
        _download(f"{blob_uri.rstrip('/')}/sha256/{address[1]}", draft, limits.whole_bytes)
        if (digest := _digest(draft)) != address[1]:
            raise CodeError(
                f"{archive} is damaged in {blob_uri}: node {platform.node()} received data with sha256 {digest}; "
                "submit the job again with its code"
            )
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def _download(uri: str, target: Path, limit_bytes: int) -> None:
    try:
        fs, path = url_to_fs(checked_uri(uri), use_listings_cache=False)
        with fs.open(path, "rb") as reader, target.open("wb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                writer.write(chunk)
                if writer.tell() > limit_bytes:
                    raise CodeError(f"{uri} has more than {limit_bytes} bytes, the limit of a code archive")
    except CodeError:
        raise
    except FileNotFoundError as error:
        remedy = "start the server with a --blob-uri that every node reaches, such as s3://bucket/blobs"
        if fsspec_storage.local_path(uri) is None:
            remedy = "it was removed, or the server now uses another --blob-uri: submit the job again with its code"
        raise CodeError(f"node {platform.node()} does not find the job's code at {uri}: {remedy}") from error
    except Exception as error:  # each storage has its own classes
        raise CodeError(
            f"node {platform.node()} cannot read the job's code at {uri}: {type(error).__name__}: {error}"
        ) from error


def _digest(file: Path) -> str:
    with file.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def _remove_old(cache: Path, limit_bytes: int = _CACHE_BYTES) -> None:
    """Remove archives that were unused for a week, then the longest unused ones while the cache exceeds its limit.

    Incomplete files of dead agents count as archives.
    """
    found: list[tuple[float, int, Path]] = []
    for file in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another agent was faster
            status = file.stat()
            found.append((time.time() - status.st_mtime, status.st_size, file))
    size_bytes = sum(size for _, size, _ in found)
    for unused_s, size, file in sorted(found, reverse=True):
        if unused_s > _UNUSED_S or (size_bytes > limit_bytes and unused_s > _IN_USE_S):
            file.unlink(missing_ok=True)
            size_bytes -= size


def _refuse_links_outside(archive: str, directory: Path) -> None:
    """Refuse links that lead outside through other links."""
    root = Path(os.path.realpath(directory))
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder) / name for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):  # Path raises for loops
                raise CodeError(
                    f"{archive} is refused: {path.relative_to(directory)} leads outside the archive through other links"
                )
