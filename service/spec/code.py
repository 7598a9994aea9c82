"""Code section of a job spec: the archive of the job's own code."""

from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import ARCHIVE, SpecModel


class Code(SpecModel):
    """A folder of code that travels with the job. Each node unpacks it once. It becomes the working directory of the
    ranks and the first entry of their `sys.path`.

    In a spec file, `code: {working_dir: DIR}` names a folder relative to the file. `regroup submit` packs and uploads
    the folder and replaces the field with the address of the archive. The server accepts only addresses.
    """

    archive: str = Field(pattern=ARCHIVE, max_length=71)
    """Content address `sha256:…`, as returned by `regroup submit SPEC --working-dir DIR` or
    `Client.upload_working_dir`."""

    @model_validator(mode="before")
    @classmethod
    def _no_local_path(cls, data: Any) -> Any:
        if isinstance(data, dict) and "working_dir" in data:
            raise PydanticCustomError(
                "working_dir",
                "working_dir is a local folder that nodes cannot access: submit with `regroup submit SPEC "
                "--working-dir DIR`, or upload the folder with Client.upload_working_dir and set code.archive",
            )
        return data
