"""A folder of code on its way to a server: packed, announced, sent in pieces from wherever the upload stands."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from regroup.api.client.code_archive import Archive, ArchiveError, of_file, pack
from regroup.api.schemas import jobs

PIECE_BYTES = 4 * 2**20
"""Sent at once: small enough that a broken connection costs little."""
_PIECE_S = 120.0
"""For one piece: with the last one the server reads the whole archive again."""
Progress = Callable[[int, int], None]
"""Told how many bytes of how many are there."""


class Uploads:
    """What a server can be asked about uploads.

    Args:
        ask: method, path and options of a request → its answer; `also` are statuses that are an answer, too.
    """

    def __init__(self, ask: Callable[..., httpx2.Response]) -> None:
        self._ask = ask

    def limits(self) -> jobs.UploadLimits:
        """What the server takes."""
        return jobs.UploadLimits.model_validate_json(self._ask("GET", "/v1/uploads").content)

    def announce(self, archive: Archive) -> jobs.Upload:
        """Where the upload of an archive stands."""
        body = {"sha256": archive.sha256, "size_bytes": archive.size_bytes}
        return jobs.Upload.model_validate_json(self._ask("POST", "/v1/uploads", body=body).content)

    def append(self, upload_id: str, offset_bytes: int, data: bytes) -> jobs.Upload | None:
        """Add bytes; None where the upload stands elsewhere: an answer was lost, or somebody sends the same."""
        answer = self._ask(
            "PATCH", f"/v1/uploads/{upload_id}", data=data, headers={"Upload-Offset": str(offset_bytes)},
            also=(httpx2.codes.CONFLICT,), timeout_s=_PIECE_S,
        )  # fmt: skip
        return jobs.Upload.model_validate_json(answer.content) if answer.is_success else None


def upload_folder(uploads: Uploads, folder: Path, on_progress: Progress | None = None, also: Path | None = None) -> str:
    """Pack `folder`, and what is in `also` beside it, and upload it; returns the archive's address.

    Raises:
        ArchiveError: the folder cannot travel, or is larger than the server takes.
    """
    with tempfile.TemporaryDirectory(prefix="regroup-code-") as scratch:
        archive = pack(folder, Path(scratch) / "code.tar", uploads.limits().archive_bytes, also)
        return send(uploads, archive, on_progress)


def upload_file(uploads: Uploads, file: Path, on_progress: Progress | None = None) -> str:
    """Upload an archive that is there already; returns its address.

    Raises:
        ArchiveError: the file cannot be read.
    """
    try:
        archive = of_file(file)
    except OSError as error:
        raise ArchiveError(f"{file} cannot be read: {error.strerror}") from error
    return send(uploads, archive, on_progress)


def send(uploads: Uploads, archive: Archive, on_progress: Progress | None = None) -> str:
    """Send what the server lacks; returns the archive's address."""
    state = uploads.announce(archive)
    with archive.file.open("rb") as reader:
        while not state.complete:
            reader.seek(state.offset_bytes)
            data = reader.read(PIECE_BYTES)
            state = uploads.append(state.id, state.offset_bytes, data) or uploads.announce(archive)
            if on_progress is not None:
                on_progress(state.offset_bytes, archive.size_bytes)
    return archive.address


def with_code_uploaded(spec: Mapping[str, Any], upload: Callable[[Path], str]) -> dict[str, Any]:
    """`spec` with the folder that `code.working_dir` names uploaded, and the archive's address in its place."""
    folder = working_dir_of(spec)
    return dict(spec) if folder is None else {**spec, "code": {"archive": upload(folder)}}


def working_dir_of(spec: Mapping[str, Any]) -> Path | None:
    """The folder that a spec names as its code, None if it names none."""
    code: object = spec.get("code")
    if not isinstance(code, dict) or code.keys() != {"working_dir"}:
        return None  # the server says what is wrong with anything else
    folder: object = code["working_dir"]
    return Path(folder) if isinstance(folder, str) else None
