"""Pack documents into records of equal length: concatenate them with end-of-document ids and cut every `sequence`.

A record has `sequence` tokens plus the next one, which is the last label and the first token of the next record.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.generic]


class Packer:
    """Packer of the tokens of one unit."""

    def __init__(self, sequence: int, end_of_document: int, dtype: np.dtype[Any]) -> None:
        self._sequence, self._dtype = sequence, dtype
        self._end = np.array([end_of_document], dtype)
        self._waiting: list[Tokens] = []
        self._held = 0
        self._in_document = False
        self._is_cut = False
        self.tokens = 0
        """Number of tokens added so far, including ends of documents."""

    @property
    def held(self) -> int:
        """Number of tokens that are not in a record yet."""
        return self._held

    @property
    def dropped(self) -> int:
        """Number of tokens after the last record, too few for another one."""
        return self._held - 1 if self._is_cut else self._held

    def add(self, ids: Tokens) -> None:
        """Add the next tokens of a document."""
        if len(ids):
            self._in_document = True
            self._put(ids.astype(self._dtype))

    def end_document(self) -> None:
        """End the document. An empty document adds no token."""
        if self._in_document:
            self._put(self._end)
        self._in_document = False

    def pop_records(self) -> Tokens:
        """Remove and return all complete records, of shape (n, sequence + 1)."""
        stream = np.concatenate([np.empty(0, self._dtype), *self._waiting])
        count = max(0, (len(stream) - 1) // self._sequence)
        rest = stream[count * self._sequence :]
        self._waiting, self._held = [rest], len(rest)
        self._is_cut = self._is_cut or count > 0
        at = np.arange(count)[:, None] * self._sequence + np.arange(self._sequence + 1)
        return stream[at]

    def _put(self, ids: Tokens) -> None:
        self._waiting.append(ids)
        self._held += len(ids)
        self.tokens += len(ids)
