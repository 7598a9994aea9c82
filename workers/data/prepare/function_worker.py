"""Process of a job's data function: `python -m regroup.workers.data.prepare.function_worker MODULE:FUNCTION`.

Like a rank, it has the job's interpreter, code, environment and secrets, and no credentials of the platform. Its parent
holds the credentials and never unpickles its output. Batches and records travel through two pipes:

    → length, pickle of {column: values}
    ← length, JSON {"arrays": [[name, type, shape], …]} or {"error", "traceback"} or {"wrong": why, "row": number}
      and, after "arrays", the bytes of the arrays in order
"""

import argparse
import importlib
import json
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

LENGTH = struct.Struct("<Q")


def main() -> None:
    """Serve batches until the input ends."""
    parser = argparse.ArgumentParser(prog="data function")
    parser.add_argument("function")
    parser.add_argument("--batch-format", required=True)
    parser.add_argument("--fds", type=int, nargs=2, required=True)
    args = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    with os.fdopen(args.fds[0], "rb") as batches, os.fdopen(args.fds[1], "wb") as records:
        try:
            function = _load(args.function)
        except BaseException as error:
            _send(records, {"error": f"{type(error).__name__}: {error}", "traceback": _traceback(error)})
            return
        _send(records, {"arrays": []})
        while head := batches.read(LENGTH.size):
            _serve(function, pickle.loads(batches.read(LENGTH.unpack(head)[0])), args.batch_format, records)


def _serve(function: Callable[[Any], Any], columns: Mapping[str, Any], batch_format: str, records: BinaryIO) -> None:
    try:
        arrays = _arrays(function(_batch(columns, batch_format)))
    except _WrongRecord as error:
        _send(records, {"wrong": error.why, "row": error.row})
        return
    except BaseException as error:
        _send(records, {"error": f"{type(error).__name__}: {error}", "traceback": _traceback(error)})
        return
    _send(records, {"arrays": [[name, values.dtype.str, values.shape] for name, values in arrays.items()]}, arrays)


def _load(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(module), attribute, None)
    if not callable(function):
        raise AttributeError(f"module {module} has no function {attribute!r}")
    return function


def _batch(columns: Mapping[str, list[Any]], batch_format: str) -> Any:
    if batch_format == "pandas":
        import pandas

        return pandas.DataFrame({name: pandas.Series(values) for name, values in columns.items()})
    if batch_format == "pyarrow":
        import pyarrow

        return pyarrow.table(dict(columns))
    return {name: _column(values) for name, values in columns.items()}


def _column(values: list[Any]) -> npt.NDArray[Any]:
    """Return an array of numbers if all values have one shape, otherwise an array of objects."""
    if all(isinstance(value, int | float | list) for value in values):
        try:
            return np.asarray(values)
        except (ValueError, OverflowError):
            pass  # the lists have different lengths
    column = np.empty(len(values), object)
    column[:] = values
    return column


class _WrongRecord(Exception):
    def __init__(self, why: str, row: int | None) -> None:
        super().__init__(why)
        self.why, self.row = why, row


def _arrays(returned: object) -> dict[str, npt.NDArray[Any]]:
    """Convert the result of the function to arrays of numbers."""
    if not isinstance(returned, Mapping):
        raise _WrongRecord(f"returned {type(returned).__name__}, not a dict of arrays", None)
    return {str(name): _numbers(str(name), values) for name, values in returned.items()}


def _numbers(name: str, values: Any) -> npt.NDArray[Any]:
    if not hasattr(values, "__len__"):
        raise _WrongRecord(f"field {name!r} is {type(values).__name__}, not an array with a row for each record", None)
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.dtype.kind in "iuf":
        return np.ascontiguousarray(array)
    first: npt.NDArray[Any] | None = None
    for row, value in enumerate(values):
        this = _number(name, row, value)
        first = this if first is None else first
        if this.shape != first.shape:
            raise _WrongRecord(
                f"field {name!r} has shape {this.shape}, but {first.shape} in the first record: record lengths differ",
                row,
            )
    return np.ascontiguousarray(np.stack([np.asarray(value) for value in values])) if first is not None else array


def _number(name: str, row: int, value: object) -> npt.NDArray[Any]:
    try:
        this = np.asarray(value)
    except ValueError:
        this = np.empty(0, object)
    if this.dtype.kind not in "iufb":
        raise _WrongRecord(
            f"field {name!r} is {type(value).__name__}: a record may contain integers and floats only", row
        )
    return this


def _traceback(error: BaseException) -> str:
    """Format the traceback from the first frame outside this file."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    lines = traceback.format_list(own) + traceback.format_exception_only(error)
    return "".join(["Traceback (most recent call last):\n", *lines])[-8000:]


def _send(records: BinaryIO, head: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
    text = json.dumps(head).encode()
    records.write(LENGTH.pack(len(text)) + text)
    for values in (arrays or {}).values():
        records.write(values.tobytes())
    records.flush()


if __name__ == "__main__":
    main()
