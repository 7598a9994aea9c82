"""`data.prepare` of a spec: records of fixed length, made once from files of many formats."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Positive, SpecModel

_OF_PACKING = ("field", "tokenizer")
_OF_A_FUNCTION = ("batch_format", "batch_rows")


class DataPreparation(SpecModel):
    """Records of fixed length, made once by a Ray Data pipeline on the job's nodes and kept under `storage_uri`."""

    format: Literal["text", "jsonl", "parquet", "tar", "hf"]
    """Of all files. `tar` is one of webdataset samples, `hf` a folder that `Dataset.save_to_disk` wrote."""
    train: Annotated[list[str], Field(min_length=1)]
    """Files, folders, globs or fsspec URIs."""
    validation: list[str] = []
    """Held-out files; what matches here is left out of `train`."""
    field: str | None = Field(default=None, min_length=1)
    """Where a row's text is; `a.b` is `b` in the object `a`. `txt` of a tar sample if absent, else `text`."""
    tokenizer: str = "byte"
    """`byte`, or path or URI of a `tokenizers` JSON file."""
    sequence: Positive | None = None
    """Tokens of a record, beside the last label. The built-in trainer's is `training.sequence`."""
    function: str | None = Field(default=None, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*$")
    """`module:function` of the job's `code`: a batch of rows → a dict of arrays, instead of tokenizer and packing."""
    batch_format: Literal["numpy", "pandas", "pyarrow"] = "numpy"
    """What the function is given: a dict of arrays, a DataFrame, or a Table."""
    batch_rows: Positive = 1024
    """At most so many rows at a time; a batch never spans two files."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        needless = _OF_PACKING if self.function else _OF_A_FUNCTION
        for name in needless:
            if getattr(self, name) != type(self).model_fields[name].default:
                told = "of packing; the function gets whole rows" if self.function else "of a function; give function"
                raise PydanticCustomError("prepare", "{name} is a matter {told}", {"name": name, "told": told})
        return self


class PreparedData(SpecModel):
    """Data that is prepared as records by Ray Data: see docs/guides/data.md."""

    prepare: DataPreparation

    def recipe(self, sequence: int | None, *, code: str, python: str, reads: str) -> dict[str, Any]:
        """All that the records depend on, beside the files, as plain data for the nodes.

        Args:
            reads: what the built-in trainer reads of them, `tokens` or `images`; empty where somebody else does.
        """
        of_function = {"code": code, "python": python} if self.prepare.function else {"code": "", "python": ""}
        sequence = self.prepare.sequence or sequence
        return {**self.prepare.model_dump(), **of_function, "sequence": sequence, "reads": reads}


def which_data(value: object) -> str:
    """`prepared` or `text`: which way a spec's data goes."""
    if isinstance(value, Mapping):
        return "prepared" if "prepare" in cast(Mapping[str, object], value) else "text"
    return "prepared" if isinstance(value, PreparedData) else "text"


AsPrepared = Annotated[PreparedData, Tag("prepared")]
WHICH_DATA = Discriminator(which_data)
