"""Wire models of `/v1/uploads`."""

from pydantic import ConfigDict, Field

from regroup.api.schemas.wire import Wire
from regroup.service.spec.types import Integer


class NewUpload(Wire):
    """An archive of code that a client wants to upload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(max_length=64, pattern="^[0-9a-f]{64}$")
    """SHA-256 of the archive, in hex."""
    size_bytes: Integer = Field(ge=1, lt=2**53)
    """Size of the archive."""


class Upload(Wire):
    """The upload of an archive."""

    id: str
    """Id, derived from the content. Clients that upload the same archive share one upload."""
    archive: str
    """Value for `code.archive` of a spec when the upload is complete."""
    size_bytes: int
    """Size of the archive."""
    offset_bytes: int
    """Offset at which the upload continues."""
    complete: bool
    """True if the archive is stored and verified."""


class UploadLimits(Wire):
    """The largest sizes that the server accepts."""

    archive_bytes: int
    """Largest size of an archive."""
    piece_bytes: int
    """Largest body of a request."""
    total_bytes: int | None = None
    """Largest size of all archives and unfinished uploads together. Older servers have no such limit."""
