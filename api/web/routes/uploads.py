"""/v1/uploads: code on its way into the blob store, in pieces, as often as the network needs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response

from regroup.api.schemas.jobs import NewUpload, Upload, UploadLimits
from regroup.api.web.http import MAX_PIECE_BYTES
from regroup.api.web.problems import problem, responses
from regroup.api.web.routes.dependencies import get_services
from regroup.service.blobs import store as blob_store
from regroup.service.blobs.store import ArchiveKey, BlobStore, OffsetError


def blobs_of(request: Request) -> BlobStore:
    """Where archives of code are kept."""
    return get_services(request).blobs


TheBlobStore = Annotated[BlobStore, Depends(blobs_of)]
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{64}-[1-9]\d{0,14}$")]
_THERE = {200: {"model": Upload, "description": "The archive is there already"}}
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}
router = APIRouter(prefix="/v1/uploads", tags=["uploads"], responses=responses("archive_too_large"))


@router.get("")
async def limits(blobs: TheBlobStore) -> UploadLimits:
    """What this server takes."""
    return UploadLimits(archive_bytes=blobs.limit_bytes, piece_bytes=MAX_PIECE_BYTES)


@router.post("", status_code=201, responses={**responses("malformed_json"), **_THERE})
async def create(new: NewUpload, response: Response, blobs: TheBlobStore) -> Upload:
    """Announce an archive: answers where its upload stands, whoever began it, or that the archive is there."""
    upload = await blobs.start_upload(ArchiveKey(new.sha256, new.size_bytes))
    response.status_code = 200 if upload.complete else 201
    return _wire(upload, response)


@router.get("/{upload}")
async def get(upload: UploadId, response: Response, blobs: TheBlobStore) -> Upload:
    """How far an upload is. One that brought nothing for a day begins again at 0."""
    return _wire(await blobs.start_upload(ArchiveKey.from_id(upload)), response)


@router.patch(
    "/{upload}", response_model=Upload, responses=responses("conflict", "damaged_upload"),
    openapi_extra={"requestBody": _BYTES},
)  # fmt: skip
async def append(
    upload: UploadId,
    request: Request,
    response: Response,
    blobs: TheBlobStore,
    upload_offset: Annotated[int, Header(ge=0, lt=2**53)],
) -> Upload | Response:
    """Add the bytes that follow. The last ones complete it; with all there and no answer, send none to ask again.

    `Upload-Offset` of a 409 says where to go on.
    """
    try:
        return _wire(await blobs.append(ArchiveKey.from_id(upload), upload_offset, await request.body()), response)
    except OffsetError as error:
        refused = problem("conflict", str(error), request.url.path)
        refused.headers["Upload-Offset"] = str(error.offset_bytes)
        return refused


def _wire(upload: blob_store.Upload, response: Response) -> Upload:
    response.headers["Upload-Offset"] = str(upload.offset_bytes)
    return Upload(
        id=upload.key.id,
        archive=upload.key.archive,
        size_bytes=upload.key.size_bytes,
        offset_bytes=upload.offset_bytes,
        complete=upload.complete,
    )
