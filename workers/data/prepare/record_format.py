"""Format of files of fixed-length records, and their writer.

A record consists of its fields in order, little-endian and without gaps. numpy maps a file with the type that
`record_dtype` returns.
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
    """A batch of records does not match the previous batches."""


def record_dtype(fields: Iterable[Sequence[Any]]) -> np.dtype[Any]:
    """Return the type of one record."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields])


def fields_of(arrays: Arrays) -> Fields:
    """Return the fields of the records in a batch, sorted by name.

    Raises:
        WrongRecord: A field is neither integer nor float.
    """
    found: list[tuple[str, str, tuple[int, ...]]] = []
    for name, values in sorted(arrays.items()):
        if values.dtype.kind not in "iuf":
            raise WrongRecord(f"field {name!r} is {values.dtype}: a record may contain integers and floats only")
        found.append((name, values.dtype.newbyteorder("<").str, values.shape[1:]))
    return tuple(found)


def describe_fields(fields: Iterable[Sequence[Any]]) -> str:
    """Format fields for people: `tokens <u2 (129,)`."""
    return ", ".join(f"{name} {kind} {tuple(shape)}" for name, kind, shape in fields) or "no fields"


class RecordFile:
    """Writer of a file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self.fields: Fields | None = None
        self.largest: dict[str, int] = {}
        """Integer field → its largest value."""
        self._digest = hashlib.sha256()
        self._file = path.open("wb")

    def append(self, arrays: Arrays) -> None:
        """Append records; the first dimension of every array is their number.

        Raises:
            WrongRecord: The arrays differ in length, or the fields differ from those of earlier records.
        """
        fields = fields_of(arrays)
        counts = {len(values) for values in arrays.values()}
        if len(counts) != 1:
            lengths = ", ".join(f"{name}: {len(values)}" for name, values in sorted(arrays.items()))
            raise WrongRecord(f"fields have unequal numbers of records: {lengths or 'no fields'}")
        if self.fields not in (None, fields):
            assert self.fields is not None, "checked above"
            raise WrongRecord(
                f"records have {describe_fields(fields)}, but earlier records have {describe_fields(self.fields)}"
            )
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
        """Close the file and return `records`, `size_bytes`, `sha256`, `fields` and `largest`."""
        self._file.close()
        return {
            "records": self.records,
            "size_bytes": self.path.stat().st_size,
            "sha256": self._digest.hexdigest(),
            "fields": [[name, kind, list(shape)] for name, kind, shape in self.fields or ()],
            "largest": self.largest,
        }
