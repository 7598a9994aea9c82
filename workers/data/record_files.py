"""Prepared records, read by mapping their files: several files as one list. `workers/prepare` makes them."""

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
    """The records of one split: `records[[3, 1]]` is field → tensor, a row for each number. Ranks share its pages."""

    def __init__(self, directory: Path, part: str) -> None:
        self._meta: dict[str, Any] = json.loads((directory / META).read_text())
        self._files: list[dict[str, Any]] = self._meta["splits"][part]["files"]
        self._directory = directory
        self._ends = list(accumulate(int(file["records"]) for file in self._files))

    def __len__(self) -> int:
        """How many there are."""
        return self._ends[-1]

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Fields of these records, each (len(numbers), *shape); unsigned integers as int64.

        Raises:
            IndexError: there is no such record.
        """
        import numpy as np  # a job's own Python need not have it, unless it reads records

        rows = np.stack([self._row(number) for number in numbers])
        return {str(name): torch.from_numpy(_plain(rows[name])) for name in self._dtype.names or ()}

    @property
    def fingerprint(self) -> str:
        """Hash of the sources' content and of how the records were made."""
        return str(self._meta["fingerprint"])

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each field of a record."""
        return {name: tuple(shape) for name, _, shape in self._meta["fields"]}

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
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
    """The prepared records of a split; None if the job has none."""
    is_there = dataset.get("kind") == KIND and part in dataset["records"]
    return RecordFiles(Path(dataset["directory"]), part) if is_there else None


def _plain(values: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    import numpy as np

    kind = np.int64 if values.dtype.kind == "u" else values.dtype
    return np.ascontiguousarray(values, dtype=kind)
