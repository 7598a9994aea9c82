"""Recipe of a preparation, and its fingerprint: a hash of everything that determines the records."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare import readers
from regroup.workers.data.prepare.readers import SUFFIXES, TEXT_FIELDS
from regroup.workers.data.sources import SourceFile, split

_VERSION = 1
"""Version of the preparation. Increase it when the same recipe produces different records."""


@dataclass(frozen=True)
class Recipe:
    """Description of the conversion of rows into records."""

    format: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    field: str | None
    tokenizer: str
    sequence: int | None
    """Tokens of a record, without the last label: for packing, and for functions that serve the built-in trainer."""
    function: str | None
    """`module:function` that makes the records instead of tokenizer and packing."""
    batch_format: str
    batch_rows: int
    code: str
    """Content address of the code with the function."""
    python: str
    """Section of the spec for the Python that runs the function."""
    reads: str
    """Fields that the built-in trainer reads: `tokens` or `images`; empty if it does not read the records."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Recipe":
        """Create a recipe from plain data: the section `prepare` of a spec plus the resolved values."""
        fields: dict[str, Any] = {key: data[key] for key in cls.__dataclass_fields__}
        fields["train"], fields["validation"] = tuple(data["train"]), tuple(data["validation"])
        return cls(**fields)

    @property
    def text_field(self) -> str:
        """Name of the field with the text of a row."""
        return self.field or TEXT_FIELDS[self.format]

    def files(self) -> dict[str, list[SourceFile]]:
        """Return split → its files in order; `validation` exists only if files are held out.

        Raises:
            DataError: A source is missing, or no training file is left.
        """
        if self.format == "hf":
            held_out = [file for source in self.validation for file in readers.hf_files(source)]
            kept = [file for source in self.train for file in readers.hf_files(source) if file not in held_out]
            if not kept:
                raise DataError(f"every file of train {list(self.train)} is held out by validation")
        else:
            kept, held_out = split(self.train, self.validation, SUFFIXES[self.format])
        return {"train": kept, "validation": held_out} if held_out else {"train": kept}

    def fingerprint(self, tokenizer: str, content: Mapping[str, Sequence[str]]) -> str:
        """Return the fingerprint: 32 hexadecimal digits.

        Args:
            tokenizer: Identity of the tokenizer.
            content: Split → hash of each file in order. Names and locations do not count.
        """
        how = {key: value for key, value in asdict(self).items() if key not in ("train", "validation", "tokenizer")}
        whole = {"version": _VERSION, **how, "tokenizer": tokenizer, "content": dict(content)}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]
