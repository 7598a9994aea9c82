"""What is to be made of which files, and its name: a hash of all that the records depend on."""

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
"""Raised when the same recipe makes other records than before."""


@dataclass(frozen=True)
class Recipe:
    """How rows become records."""

    format: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    field: str | None
    tokenizer: str
    sequence: int | None
    """Tokens of a record, and one more: for packing, and for a function whose records the built-in trainer reads."""
    function: str | None
    """`module:function`, which makes the records instead of tokenizer and packing."""
    batch_format: str
    batch_rows: int
    code: str
    """Content address of the code that the function is in."""
    python: str
    """What the spec says of the Python that runs the function."""
    reads: str
    """What the built-in trainer reads of the records: `tokens` or `images`; empty if it does not read them."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Recipe":
        """From plain data: `prepare` of a spec, and what is known besides."""
        fields: dict[str, Any] = {key: data[key] for key in cls.__dataclass_fields__}
        fields["train"], fields["validation"] = tuple(data["train"]), tuple(data["validation"])
        return cls(**fields)

    @property
    def text_field(self) -> str:
        """Where a row's text is."""
        return self.field or TEXT_FIELDS[self.format]

    def files(self) -> dict[str, list[SourceFile]]:
        """Split → its files, in order; validation only where something is held out.

        Raises:
            DataError: a source is missing, or nothing is left to train on.
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
        """32 hexadecimal digits.

        Args:
            tokenizer: its identity.
            content: split → the hash of each file, in order. Names do not matter, nor where the files lie.
        """
        how = {key: value for key, value in asdict(self).items() if key not in ("train", "validation", "tokenizer")}
        whole = {"version": _VERSION, **how, "tokenizer": tokenizer, "content": dict(content)}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]
