"""Section `data.prepare` of a job spec: records of fixed length, created once from files of many formats."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import FunctionName, Integer, Location, SpecModel

Files = Annotated[list[Location], Field(max_length=1000)]
"""Files, folders, globs or URIs."""

_PACKING_FIELDS = ("field", "tokenizer")
_FUNCTION_FIELDS = ("batch_format", "batch_rows")


class DataPreparation(SpecModel):
    """Records of fixed length. A Ray Data pipeline creates them once, on the job's nodes, and stores them under
    `storage_uri`."""

    format: Literal["text", "jsonl", "parquet", "tar", "hf"]
    """Format of all files. `tar` is an archive of webdataset samples; `hf` is a folder written by
    `Dataset.save_to_disk`."""
    train: Annotated[Files, Field(min_length=1)]
    """Files, folders, globs or fsspec URIs of the training data."""
    validation: Files = []
    """Held-out files. A file that matches here is excluded from `train`."""
    field: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Column that contains the text; `a.b` is the key `b` of the object `a`. Default: `txt` for tar samples, otherwise
    `text`."""
    tokenizer: Location = "byte"
    """`byte`, or the path or URI of a `tokenizers` JSON file."""
    sequence: Annotated[Integer, Field(ge=1, le=2**24)] | None = None
    """Number of tokens per record, not counting the last label. Default: `training.sequence` of the built-in
    trainer."""
    function: FunctionName | None = None
    """Function `module:function` of the job's `code` that maps a batch of rows to a dictionary of arrays. Replaces the
    tokenizer and packing."""
    batch_format: Literal["numpy", "pandas", "pyarrow"] = "numpy"
    """Argument type of `function`: a dictionary of NumPy arrays, a pandas DataFrame or a PyArrow Table."""
    batch_rows: Integer = Field(default=1024, ge=1, le=2**24)
    """Maximum number of rows in one call of `function`. A batch never spans two files."""

    @model_validator(mode="after")
    def _check_exclusive_fields(self) -> Self:
        unused = _PACKING_FIELDS if self.function else _FUNCTION_FIELDS
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                reason = (
                    "is not used with function, which receives whole rows" if self.function else "requires function"
                )
                raise PydanticCustomError("prepare", "{name} {reason}", {"name": name, "reason": reason})
        return self


class PreparedData(SpecModel):
    """Data that Ray Data prepares as records. See docs/guides/data.md."""

    prepare: DataPreparation

    def recipe(self, sequence: int | None, *, code: str, python: str, reads: str) -> dict[str, Any]:
        """Return everything that determines the records, except the files, as plain data for the nodes.

        Args:
            sequence: tokens per record if the spec does not set `prepare.sequence`.
            code: address of the job's code archive.
            python: identity of the job's Python environment.
            reads: sample kind that the built-in trainer expects, `tokens` or `images`; empty for other workloads.
        """
        of_function = {"code": code, "python": python} if self.prepare.function else {"code": "", "python": ""}
        sequence = self.prepare.sequence or sequence
        return {**self.prepare.model_dump(), **of_function, "sequence": sequence, "reads": reads}


def data_kind(value: object) -> str:
    """Return `prepared` or `text`, the kind of a spec's data section."""
    if isinstance(value, Mapping):
        return "prepared" if "prepare" in cast(Mapping[str, object], value) else "text"
    return "prepared" if isinstance(value, PreparedData) else "text"


TaggedPreparedData = Annotated[PreparedData, Tag("prepared")]
DATA_KIND = Discriminator(data_kind)
