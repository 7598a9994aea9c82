"""Memory-mapped token file. `tokenize.py` writes it."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regroup.workers.contract.error_classes import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

META = "meta.json"


class TokenFile:
    """Sequence of token ids. Documents end with the end-of-document id. The ranks of a node share the pages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._meta: dict[str, Any] = json.loads((path.parent / META).read_text())

    @property
    def fingerprint(self) -> str:
        """Hash of the content of the sources and of the tokenizer."""
        return str(self._meta["fingerprint"])

    @property
    def vocab_size(self) -> int:
        """Upper bound of token ids (exclusive)."""
        return int(self._meta["vocab_size"])

    def records(self, sequence: int) -> int:
        """Return the number of samples of `sequence` tokens plus the following one, which is the last label.

        Raises:
            DataError: The file is too short for one sample.
        """
        count = (len(self._tokens) - 1) // sequence
        if count < 1:
            raise DataError(too_short(self._path.name, len(self._tokens), sequence))
        return count

    def rows(self, numbers: Sequence[int], sequence: int) -> tuple[Tensor, Tensor]:
        """Return tokens and labels of these records, each int64 of shape (len(numbers), sequence)."""
        import numpy as np  # only needed to read token files: a job's own Python may lack it

        rows = np.stack([self._tokens[n * sequence : (n + 1) * sequence + 1] for n in numbers]).astype(np.int64)
        whole = torch.from_numpy(rows)
        return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()

    @cached_property
    def _tokens(self) -> "npt.NDArray[np.generic]":
        import numpy as np

        return np.memmap(self._path, dtype=self._meta["dtype"], mode="r")


def too_short(name: str, tokens: int, sequence: int) -> str:
    """Return the error message for too little text."""
    return (
        f"{name} has {tokens} tokens, fewer than one sample of {sequence} + 1; "
        "give more text or a shorter training.sequence"
    )
