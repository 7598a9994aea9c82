"""Prepared records in memory-mapped files, read as one list. `workers/data/prepare` writes them."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regroup.workers.data.token_file import META

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

KIND = "records"


class RecordFiles:
    """Records of one split. `records[[3, 1]]` is field → tensor with a row for each number. Ranks share the pages."""

    def __init__(self, directory: Path, part: str) -> None:
        self._meta: dict[str, Any] = json.loads((directory / META).read_text())
        self._files: list[dict[str, Any]] = self._meta["splits"][part]["files"]
        self._directory = directory
        self._ends = list(accumulate(int(file["records"]) for file in self._files))

    def __len__(self) -> int:
        """Return the number of records."""
        return self._ends[-1]

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the fields of these records, each of shape (len(numbers), *shape); unsigned integers as int64.

        Raises:
            IndexError: A record does not exist.
        """
        import numpy as np  # only needed to read records: a job's own Python may lack it

        rows = np.stack([self._row(number) for number in numbers])
        return {str(name): torch.from_numpy(_plain(rows[name])) for name in self._dtype.names or ()}

    @property
    def fingerprint(self) -> str:
        """Hash of the content of the sources and of the recipe."""
        return str(self._meta["fingerprint"])

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each field of a record."""
        return {name: tuple(shape) for name, _, shape in self._meta["fields"]}

    @property
    def vocab_size(self) -> int:
        """Upper bound of token ids (exclusive)."""
        return int(self._meta["vocab_size"])

    def _row(self, number: int) -> "npt.NDArray[Any]":
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        file = bisect_right(self._ends, number)
        return self._maps[file][number - (self._ends[file - 1] if file else 0)]

    @cached_property
    def _dtype(self) -> "np.dtype[Any]":
        import numpy as np

        return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in self._meta["fields"]])

    @cached_property
    def _maps(self) -> "list[npt.NDArray[Any]]":
        import numpy as np

        return [
            np.memmap(self._directory / file["name"], dtype=self._dtype, mode="r", shape=(file["records"],))
            for file in self._files
        ]


def open_records(dataset: Mapping[str, Any], part: str) -> RecordFiles | None:
    """Open the prepared records of a split; return None if the job has none."""
    has_split = dataset.get("kind") == KIND and part in dataset["records"]
    return RecordFiles(Path(dataset["directory"]), part) if has_split else None


def _plain(values: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    import numpy as np

    kind = np.int64 if values.dtype.kind == "u" else values.dtype
    return np.ascontiguousarray(values, dtype=kind)
