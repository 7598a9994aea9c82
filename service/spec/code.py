"""How a spec names the code that travels with a job."""

from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import SpecModel

ARCHIVE = r"^sha256:[0-9a-f]{64}$"
"""Content address of an archive."""


class Code(SpecModel):
    """A folder of code, unpacked once per node and job: the ranks' working directory, and first on their `sys.path`.

    In a spec file `code: {working_dir: DIR}` names a folder, relative to the file: whoever submits it packs and uploads
    the folder and puts the archive's address in its place. A server takes addresses only.
    """

    archive: str = Field(pattern=ARCHIVE)
    """`sha256:…`, as `regroup submit SPEC --working-dir DIR` or `Client.upload_working_dir` gave it."""

    @model_validator(mode="before")
    @classmethod
    def _no_local_path(cls, data: Any) -> Any:
        if isinstance(data, dict) and "working_dir" in data:
            raise PydanticCustomError(
                "working_dir",
                "working_dir is a folder where the spec was written, which no node sees: submit with `regroup submit "
                "SPEC --working-dir DIR`, or upload it with Client.upload_working_dir and say code.archive",
            )
        return data
