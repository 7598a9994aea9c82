"""/v1/jobs/{job}/checkpoints/{step}: the files of a checkpoint, and whether they are intact."""

import posixpath
import shlex
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from regroup.api.schemas.history import Checkpoint, CheckpointFile, CheckpointFiles, CheckpointVerification
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, TheServices
from regroup.service.operations.checkpoints import files, verification
from regroup.service.store.rows.records import JobRow

Step = Annotated[int, Path(ge=0, lt=2**53, description="Step of the checkpoint")]
router = APIRouter(
    route_class=OperationRoute,
    prefix="/v1/jobs/{job}/checkpoints/{step}",
    tags=["jobs"],
    responses=responses("conflict", "body_too_large", "malformed_json"),
)


class VerificationRequest(BaseModel):
    """A request to verify a part of a checkpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contents: bool = True
    """Compare the checksums of the contents, too. False: compare only the list of files and their sizes."""
    position: Annotated[str, Field(max_length=60)] = ""
    """`position` of the part before; empty for the first part."""


@router.get("/files")
async def checkpoint_files(job: JobToRead, step: Step, services: TheServices) -> CheckpointFiles:
    """List the files of a checkpoint, with commands that copy it, export it and load it.

    The format is that of `torch.distributed.checkpoint`, so other programs can load it without regroup.
    """
    return _present(job, await files.list_files(services.store, job, step))


@router.post("/verify")
@unconditional("reads")
async def verify_checkpoint(
    job: JobToRead, step: Step, services: TheServices, request: VerificationRequest | None = None
) -> CheckpointVerification:
    """Verify a part of a checkpoint: its files against the sizes and checksums of its manifest. Changes nothing.

    A part takes some seconds. Repeat the request with `position` of the answer until `is_complete`; any server can
    continue. A damaged file is one of `faults`.
    """
    requested = request or VerificationRequest()
    position = verification.parse_position(requested.position)
    found = await verification.verify_part(services.store, job, step, position, reads_contents=requested.contents)
    at = found.checkpoint
    return CheckpointVerification.model_validate(
        {
            **vars(found), "step": at.step, "generation": at.generation, "uri": at.uri,
            "position": "" if found.next is None else str(found.next), "is_complete": found.next is None,
        }
    )  # fmt: skip


def _present(job: JobRow, found: files.CheckpointFiles) -> CheckpointFiles:
    at = found.checkpoint
    folder = f"step-{at.step}"
    copy = _copy_command(at.uri, folder)
    if found.older_folders:  # the copy has the same folders as the storage
        root, folder = folder, f"{folder}/{posixpath.basename(at.uri)}"
        pairs = [(uri, f"{root}/{posixpath.basename(uri)}") for uri in (at.uri, *found.older_folders)]
        copy = " && ".join([f"mkdir -p {root}", *(_copy_command(uri, target) for uri, target in pairs)])
    export = f"regroup export {job.id}@{at.step} {job.name}-{at.step}.safetensors"
    return CheckpointFiles(
        checkpoint=Checkpoint.model_validate(at),
        files=[CheckpointFile.model_validate(each) for each in found.files],
        size_bytes=sum(each.size_bytes for each in found.files),
        copy_command=copy,
        export_command=export,
        load_code=_LOAD_CODE.format(folder=folder),
    )


def _copy_command(uri: str, folder: str) -> str:
    if uri.startswith(("/", "file:")):
        return f"cp -r {shlex.quote(uri.removeprefix('file://'))} {folder}"
    tool = {"s3:": "aws s3 cp --recursive", "gs:": "gcloud storage cp --recursive"}.get(uri[:3], "")
    return f"{tool} {shlex.quote(uri)} {folder}"


_LOAD_CODE = """import torch.distributed.checkpoint as dcp

reader = dcp.FileSystemReader("{folder}")
names = reader.read_metadata().state_dict_metadata  # name → type and shape
dcp.load(state, storage_reader=reader, no_dist=True)  # fills the tensors of `state` with these names
"""
