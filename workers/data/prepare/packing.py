"""Documents → records of equal length: end to end, each followed by the end-of-document id, cut every `sequence`.

A record holds `sequence` tokens and the one after them, which is the last label and the next record's first token.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.generic]


class Packer:
    """The tokens of one unit on their way into records."""

    def __init__(self, sequence: int, end_of_document: int, dtype: np.dtype[Any]) -> None:
        self._sequence, self._dtype = sequence, dtype
        self._end = np.array([end_of_document], dtype)
        self._waiting: list[Tokens] = []
        self._held = 0
        self._in_document = False
        self._is_cut = False
        self.tokens = 0
        """Put in so far, ends of documents too."""

    @property
    def held(self) -> int:
        """Tokens that wait to be taken."""
        return self._held

    @property
    def dropped(self) -> int:
        """Tokens behind the last record taken: too few for another one."""
        return self._held - 1 if self._is_cut else self._held

    def add(self, ids: Tokens) -> None:
        """Some more of a document."""
        if len(ids):
            self._in_document = True
            self._put(ids.astype(self._dtype))

    def end_document(self) -> None:
        """The document is over; an empty one leaves nothing."""
        if self._in_document:
            self._put(self._end)
        self._in_document = False

    def take(self) -> Tokens:
        """All whole records so far, (n, sequence + 1)."""
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
