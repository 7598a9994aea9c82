"""Files of fixed-length records: what a record is made of, and one file as it is written.

A record is its fields one behind the other, little-endian and without gaps: numpy reads a file by mapping it with the
type that `record_dtype` gives.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]
Fields = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, numpy type and shape of each field of a record."""


class WrongRecord(Exception):
    """A batch of records that does not fit the ones before it."""


def record_dtype(fields: Iterable[Sequence[Any]]) -> np.dtype[Any]:
    """The type of one record."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields])


def fields_of(arrays: Arrays) -> Fields:
    """The fields of the records in a batch, by name.

    Raises:
        WrongRecord: a field is neither integer nor float.
    """
    found: list[tuple[str, str, tuple[int, ...]]] = []
    for name, values in sorted(arrays.items()):
        if values.dtype.kind not in "iuf":
            raise WrongRecord(f"field {name!r} is {values.dtype}: a record holds integers and floats")
        found.append((name, values.dtype.newbyteorder("<").str, values.shape[1:]))
    return tuple(found)


def described(fields: Iterable[Sequence[Any]]) -> str:
    """Fields as a person writes them: `tokens <u2 (129,)`."""
    return ", ".join(f"{name} {kind} {tuple(shape)}" for name, kind, shape in fields) or "no fields"


class RecordFile:
    """A file of records while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self.fields: Fields | None = None
        self.largest: dict[str, int] = {}
        """Integer field → its largest value."""
        self._digest = hashlib.sha256()
        self._file = path.open("wb")

    def append(self, arrays: Arrays) -> None:
        """Add records: the first dimension of every array counts them.

        Raises:
            WrongRecord: they are not as long as each other, or not like the ones before.
        """
        fields = fields_of(arrays)
        counts = {len(values) for values in arrays.values()}
        if len(counts) != 1:
            told = ", ".join(f"{name}: {len(values)}" for name, values in sorted(arrays.items()))
            raise WrongRecord(f"fields have unequal numbers of records: {told or 'no fields'}")
        if self.fields not in (None, fields):
            assert self.fields is not None, "looked at above"
            raise WrongRecord(f"records have {described(fields)}, those before them {described(self.fields)}")
        (count,) = counts
        if not count:
            return
        self.fields = fields
        block = np.empty(count, record_dtype(fields))
        for name, values in arrays.items():
            block[name] = values
            if values.dtype.kind in "iu" and values.size:
                self.largest[name] = max(self.largest.get(name, 0), int(values.max()))
        content = block.tobytes()
        self._digest.update(content)
        self._file.write(content)
        self.records += count

    def close(self) -> dict[str, Any]:
        """What there is to say of the finished file: `records`, `size_bytes`, `sha256`, `fields`, `largest`."""
        self._file.close()
        return {
            "records": self.records,
            "size_bytes": self.path.stat().st_size,
            "sha256": self._digest.hexdigest(),
            "fields": [[name, kind, list(shape)] for name, kind, shape in self.fields or ()],
            "largest": self.largest,
        }
