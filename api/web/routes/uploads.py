"""/v1/uploads: resumable uploads of code archives to the blob store, in pieces."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response

from regroup.api.schemas.uploads import NewUpload, Upload, UploadLimits
from regroup.api.web.http import MAX_PIECE_BYTES
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import problem, responses
from regroup.api.web.routes.dependencies import ForAnyProject, services_of
from regroup.service.blobs import store as blob_store
from regroup.service.blobs.store import ArchiveKey, BlobStore, OffsetError
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import Permission
from regroup.service.store.access.audit import Change


async def blobs_of(request: Request) -> BlobStore:
    """Return the store of code archives."""
    return services_of(request).blobs


Uploader = Annotated[Sender, Depends(ForAnyProject(Permission.JOBS_WRITE))]
TheBlobStore = Annotated[BlobStore, Depends(blobs_of)]
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{64}-[1-9]\d{0,14}$", max_length=80, description="Id of the upload")]
_STORED = {200: {"model": Upload, "description": "The archive is already stored"}}
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}
router = APIRouter(
    route_class=OperationRoute,
    prefix="/v1/uploads",
    tags=["uploads"],
    responses=responses("archive_too_large", "upload_quota_exceeded"),
)


@router.get("")
async def limits(blobs: TheBlobStore, sender: Uploader) -> UploadLimits:
    """Get the largest sizes that this server accepts."""
    return UploadLimits(archive_bytes=blobs.limit_bytes, piece_bytes=MAX_PIECE_BYTES, total_bytes=blobs.quota_bytes)


@router.post("", status_code=201, responses={**responses("malformed_json"), **_STORED})
@unconditional("stores bytes under their digest")
async def create(new: NewUpload, response: Response, blobs: TheBlobStore, sender: Uploader) -> Upload:
    """Start or resume the upload of an archive, also one that another client started.

    A 507 means that all archives together would exceed the server's limit.

    Returns the current offset, or that the archive is already stored.
    """
    upload = await blobs.start_upload(ArchiveKey(new.sha256, new.size_bytes))
    response.status_code = 200 if upload.complete else 201
    return _wire(upload, response)


@router.get("/{upload}")
async def get(upload: UploadId, response: Response, blobs: TheBlobStore, sender: Uploader) -> Upload:
    """Get the offset of an upload. An upload that received nothing for a day starts again at 0."""
    return _wire(await blobs.start_upload(ArchiveKey.from_id(upload)), response)


@router.patch(
    "/{upload}", response_model=Upload, responses=responses("conflict", "damaged_upload"),
    openapi_extra={"requestBody": _BYTES},
)  # fmt: skip
@unconditional("stores bytes under their digest")
async def append(
    upload: UploadId,
    request: Request,
    response: Response,
    blobs: TheBlobStore,
    sender: Uploader,
    upload_offset: Annotated[int, Header(ge=0, lt=2**53, description="Number of bytes that the server already has")],
) -> Upload | Response:
    """Append bytes at `Upload-Offset`. The last bytes complete the upload: the server checks the archive and stores it.

    A 422 is a wrong checksum (`damaged_upload`) or an archive that breaks a rule (`archive_refused`). The server then
    discards the upload.

    If all bytes were sent but no answer arrived, repeat the request with an empty body. The `Upload-Offset` of a 409 is
    the offset at which to continue.
    """
    piece = await request.body()
    try:
        result = await blobs.append(ArchiveKey.from_id(upload), upload_offset, piece)
    except OffsetError as error:
        refused = problem("conflict", str(error), request.url.path)
        refused.headers["Upload-Offset"] = str(error.offset_bytes)
        return refused
    if result.complete and piece:
        change = Change("archives.store", result.key.archive, after={"size_bytes": result.key.size_bytes})
        await services_of(request).audit.record(sender, change)
    return _wire(result, response)


def _wire(upload: blob_store.Upload, response: Response) -> Upload:
    response.headers["Upload-Offset"] = str(upload.offset_bytes)
    return Upload(
        id=upload.key.id,
        archive=upload.key.archive,
        size_bytes=upload.key.size_bytes,
        offset_bytes=upload.offset_bytes,
        complete=upload.complete,
    )
