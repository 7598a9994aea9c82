"""/v1/jobs/{job}/checkpoints/{step}: the files of a checkpoint, and whether they are intact."""

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
    uri = shlex.quote(at.uri)
    is_local = at.uri.startswith(("/", "file:"))
    tool = {"s3:": "aws s3 cp --recursive", "gs:": "gcloud storage cp --recursive"}.get(at.uri[:3], "")
    path = shlex.quote(at.uri.removeprefix("file://"))
    copy = f"cp -r {path} {folder}" if is_local else f"{tool} {uri} {folder}"
    export = f"regroup export {job.id}@{at.step} {job.name}-{at.step}.safetensors"
    return CheckpointFiles(
        checkpoint=Checkpoint.model_validate(at),
        files=[CheckpointFile.model_validate(each) for each in found.files],
        size_bytes=sum(each.size_bytes for each in found.files),
        copy_command=copy,
        export_command=export,
        load_code=_LOAD_CODE.format(folder=folder),
    )


_LOAD_CODE = """import torch.distributed.checkpoint as dcp

reader = dcp.FileSystemReader("{folder}")
names = reader.read_metadata().state_dict_metadata  # name → type and shape
dcp.load(state, storage_reader=reader, no_dist=True)  # fills the tensors of `state` with these names
"""
