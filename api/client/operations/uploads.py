"""Upload a folder or an archive of code: start or resume the upload, then send pieces from its current offset."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from regroup.api.client.connection.requests import FileWork, Operation, Request, send, to_model, url_path
from regroup.api.client.operations.code_archive import Archive, ArchiveError, archive_of, pack
from regroup.api.schemas.uploads import Upload, UploadLimits
from regroup.service.local.data_marker import local_folder

PIECE_BYTES = 4 * 2**20
"""Size of one piece: small enough that a broken connection costs little."""
_PIECE_TIMEOUT_S = 120.0
"""After the last piece the server reads the whole archive again."""
_CONFLICT = 409
Progress = Callable[[int, int], None]
"""Called with the bytes uploaded and the bytes in total."""
LeftOut = Callable[[Sequence[str]], None]
"""Called with the folders of regroup's own data that are not in the archive, relative to the packed folder."""


def upload_limits() -> Request[UploadLimits]:
    """Get the limits of uploads."""
    return Request("GET", url_path("uploads"), to_model(UploadLimits))


def announce(archive: Archive) -> Request[Upload]:
    """Start or continue the upload of an archive."""
    body = {"sha256": archive.sha256, "size_bytes": archive.size_bytes}
    return Request("POST", url_path("uploads"), to_model(Upload), body=body, is_conditional=False)


def append(upload_id: str, offset_bytes: int, data: bytes) -> Request[Upload | None]:
    """Send one piece. The result is None if the upload is at another offset.

    This happens if a response was lost, or if another client uploads the same archive.
    """

    def parse(response: httpx2.Response) -> Upload | None:
        return Upload.model_validate_json(response.content) if response.is_success else None

    return Request(
        "PATCH", url_path("uploads", upload_id), parse, content=data, headers={"Upload-Offset": str(offset_bytes)},
        accepted_statuses=frozenset({_CONFLICT}), timeout_s=_PIECE_TIMEOUT_S, is_conditional=False,
    )  # fmt: skip


def upload_folder(
    folder: Path,
    on_progress: Progress | None = None,
    extra_folder: Path | None = None,
    data_folders: Collection[Path] = (),
    on_left_out: LeftOut | None = None,
) -> Operation[str]:
    """Pack `folder`, with the content of `extra_folder`, and upload it. The result is the address of the archive.

    Args:
        folder: Folder to pack.
        on_progress: Called with the bytes uploaded and the bytes in total.
        extra_folder: Another folder, whose content is added.
        data_folders: Folders to leave out, in addition to those that a server marked as its own.
        on_left_out: Called with the folders that were left out, if there are any.

    Raises:
        ArchiveError: The folder cannot be packed, or is larger than the server accepts.
    """
    limits = yield from send(upload_limits())
    scratch = Path(tempfile.mkdtemp(prefix="regroup-code-"))
    try:
        archive = yield FileWork(
            lambda: pack(folder, scratch / "code.tar", limits.archive_bytes, extra_folder, data_folders)
        )
        if archive.left_out and on_left_out is not None:
            on_left_out(archive.left_out)
        return (yield from _upload(archive, on_progress))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def upload_file(file: Path, on_progress: Progress | None = None) -> Operation[str]:
    """Upload an existing archive. The result is its address.

    Raises:
        ArchiveError: The file cannot be read.
    """
    try:
        archive = yield FileWork(lambda: archive_of(file))
    except OSError as error:
        raise ArchiveError(f"{file} cannot be read: {error.strerror}") from error
    return (yield from _upload(archive, on_progress))


def _upload(archive: Archive, on_progress: Progress | None) -> Operation[str]:
    state = yield from send(announce(archive))
    while not state.complete:
        data = yield FileWork(_piece_reader(archive.file, state.offset_bytes))
        appended = yield from send(append(state.id, state.offset_bytes, data))
        state = appended or (yield from send(announce(archive)))
        if on_progress is not None:
            on_progress(state.offset_bytes, archive.size_bytes)
    return archive.address


def _piece_reader(file: Path, offset_bytes: int) -> Callable[[], bytes]:
    def read() -> bytes:
        with file.open("rb") as reader:
            reader.seek(offset_bytes)
            return reader.read(PIECE_BYTES)

    return read


def with_code_uploaded(spec: Mapping[str, Any], upload: Callable[[Path, Collection[Path]], str]) -> dict[str, Any]:
    """Upload the folder of `code.working_dir`, and return `spec` with the archive's address instead.

    Args:
        spec: The spec.
        upload: Uploads a folder without the spec's own storage, and returns the address of the archive.
    """
    folder = working_dir_of(spec)
    return dict(spec) if folder is None else {**spec, "code": {"archive": upload(folder, storage_of(spec))}}


def storage_of(spec: Mapping[str, Any]) -> Collection[Path]:
    """Return the folder of a spec's own storage; empty if it names none, or object storage."""
    uri: object = spec.get("storage_uri")
    folder = local_folder(uri) if isinstance(uri, str) else None
    return () if folder is None else (folder,)


def working_dir_of(spec: Mapping[str, Any]) -> Path | None:
    """Return the folder that a spec names as its code, or None if it names none."""
    code: object = spec.get("code")
    if not isinstance(code, dict) or code.keys() != {"working_dir"}:
        return None  # the server reports any other error
    folder: object = code["working_dir"]
    return Path(folder) if isinstance(folder, str) else None
