"""A prepared token file, read by mapping it. `tokenize.py` makes it."""

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
    """Token ids in a row; documents end with the end-of-document id. Ranks of a node share its pages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._meta: dict[str, Any] = json.loads((path.parent / META).read_text())

    @property
    def fingerprint(self) -> str:
        """Hash of the sources' content and the tokenizer."""
        return str(self._meta["fingerprint"])

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return int(self._meta["vocab_size"])

    def records(self, sequence: int) -> int:
        """Samples of `sequence` tokens (and the one after them, which is the last label).

        Raises:
            DataError: not even one.
        """
        count = (len(self._tokens) - 1) // sequence
        if count < 1:
            raise DataError(too_short(self._path.name, len(self._tokens), sequence))
        return count

    def rows(self, numbers: Sequence[int], sequence: int) -> tuple[Tensor, Tensor]:
        """Tokens and labels of these records, each int64 (len(numbers), sequence)."""
        import numpy as np  # a job's own Python need not have it, unless it reads token files

        rows = np.stack([self._tokens[n * sequence : (n + 1) * sequence + 1] for n in numbers]).astype(np.int64)
        whole = torch.from_numpy(rows)
        return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()

    @cached_property
    def _tokens(self) -> "npt.NDArray[np.generic]":
        import numpy as np

        return np.memmap(self._path, dtype=self._meta["dtype"], mode="r")


def too_short(name: str, tokens: int, sequence: int) -> str:
    """What to tell whoever gave too little text."""
    return (
        f"{name} has {tokens} tokens, fewer than one sample of {sequence} + 1; "
        "give more text or a shorter training.sequence"
    )
