"""Datasets of the built-in trainer: token sequences of a token file or of prepared records, or images."""

from abc import ABC
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.record_files import KIND, RecordFiles
from regroup.workers.data.sampler import IGNORED, Samples
from regroup.workers.data.token_file import TokenFile


class BuiltinSamples(Samples, Protocol):
    """Samples with the number of classes and labels."""

    @property
    def symbols(self) -> int:
        """Upper bound of token ids or classes (exclusive)."""
        ...

    @property
    def labels_each(self) -> int:
        """Number of labels of one sample."""
        ...


class _Sequences(BuiltinSamples, ABC):
    """Samples of `sequence` tokens, each labelled with the next token."""

    def __init__(self, source: TokenFile | RecordFiles, sequence: int) -> None:
        self._source, self._sequence = source, sequence

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    @property
    def symbols(self) -> int:
        return self._source.vocab_size

    @property
    def labels_each(self) -> int:
        return self._sequence

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        shape = (count, self._sequence)
        return torch.zeros(shape, dtype=torch.int64), torch.full(shape, IGNORED, dtype=torch.int64)


class TextSamples(_Sequences):
    """Consecutive pieces of a token file. The token after a piece is its last label."""

    def __init__(self, file: TokenFile, sequence: int) -> None:
        super().__init__(file, sequence)
        self._file = file

    def __len__(self) -> int:
        return self._file.records(self._sequence)

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self._file.rows(numbers, self._sequence)


class TokenSamples(_Sequences):
    """Prepared records with the field `tokens`, one longer than a sequence, or with `tokens` and `labels`."""

    def __init__(self, records: RecordFiles, sequence: int) -> None:
        """Check the fields of the records.

        Raises:
            DataError: The records were prepared for a different length.
        """
        has = records.fields.get("tokens")
        if has != ((sequence,) if "labels" in records.fields else (sequence + 1,)):
            raise DataError(f"the records have tokens of shape {has}, but training.sequence is {sequence}")
        super().__init__(records, sequence)
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        fields = self._records[numbers]
        tokens = fields["tokens"].to(torch.int64)
        if "labels" in fields:
            return tokens, fields["labels"].to(torch.int64)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class ImageSamples(BuiltinSamples):
    """Prepared records with the fields `image`, (channels, height, width), and `label`, a number."""

    def __init__(self, records: RecordFiles) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @property
    def fingerprint(self) -> str:
        return self._records.fingerprint

    @property
    def symbols(self) -> int:
        return self._records.vocab_size

    @property
    def labels_each(self) -> int:
        return 1

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        fields = self._records[numbers]
        return fields["image"].to(torch.float32), fields["label"].to(torch.int64)

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        return torch.zeros((count, *self._shape)), torch.full((count,), IGNORED, dtype=torch.int64)

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return self._records.fields["image"]


def open_samples(dataset: Mapping[str, Any], part: str, sequence: int | None) -> BuiltinSamples | None:
    """Open the samples of a split on this node; return None if the split does not exist.

    Args:
        dataset: Description of the prepared data.
        part: Name of the split.
        sequence: Tokens of a sample; None if samples are images.

    Raises:
        DataError: There are too few tokens, or the records have a different length.
    """
    if dataset.get("kind") == KIND:
        if part not in dataset["records"]:
            return None
        records = RecordFiles(Path(dataset["directory"]), part)
        return ImageSamples(records) if sequence is None else TokenSamples(records, sequence)
    assert sequence is not None, "the checked spec has a sequence for text"
    return TextSamples(TokenFile(Path(dataset[part])), sequence) if dataset.get(part) else None
