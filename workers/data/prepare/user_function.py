"""Parent side of a job's data function: send batches of rows, receive records, report errors with file and row."""

import contextlib
import json
import os
import pickle
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare.function_worker import LENGTH
from regroup.workers.data.prepare.readers import Row

_END_S = 5.0
_NUMBER = re.compile(r"[<>=|][iuf][1248]")
_OUTPUT_LINES = 12


class FunctionFailed(DataError):
    """The data function raised an exception, or its process ended. `traceback` has only the frames of the function."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one file."""

    uri: str
    rows: Sequence[Row]

    @property
    def where(self) -> str:
        """Description of the rows."""
        first, last = self.rows[0][0], self.rows[-1][0]
        return f"{self.uri!r}, {first}" if first == last else f"{self.uri!r}, {first} to {last}"

    def columns(self) -> dict[str, list[Any]]:
        """Return field → its value in each row; None if a row lacks the field."""
        names = dict.fromkeys(name for _, row in self.rows for name in row)
        return {name: [row.get(name) for _, row in self.rows] for name in names}

    def place(self, record: int | None, records: int | None) -> str:
        """Return the origin of a record: the row, if there is one row for each record."""
        one_each = record is not None and (records is None or records == len(self.rows)) and record < len(self.rows)
        return f"{self.uri!r}, {self.rows[record or 0][0]}" if one_each else self.where


class DataFunction:
    """Process that runs the function. As a context manager it starts and ends the process."""

    def __init__(
        self, name: str, batch_format: str, *, interpreter: str, cwd: Path, env: Mapping[str, str], log: Path
    ) -> None:
        self.name, self._batch_format, self._log = name, batch_format, log
        self._command = [interpreter, "-m", "regroup.workers.data.prepare.function_worker", name]
        self._cwd, self._env = cwd, env
        self._process: subprocess.Popen[bytes] | None = None
        self._batches: BinaryIO
        self._records: BinaryIO

    def __enter__(self) -> "DataFunction":
        """Start the process and wait until it has loaded the function.

        Raises:
            FunctionFailed: The function does not exist, or its module raised an exception.
        """
        batches, theirs_in = _pipe()[::-1]
        records, theirs_out = _pipe()
        fds = [theirs_in.fileno(), theirs_out.fileno()]
        with self._log.open("ab") as log, theirs_in, theirs_out:
            self._process = subprocess.Popen(
                [*self._command, "--batch-format", self._batch_format, "--fds", *map(str, fds)],
                cwd=self._cwd, env=dict(self._env), pass_fds=fds, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._batches, self._records = batches, records
        try:
            self._receive("could not be loaded")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the pipes, wait for the process to exit, and kill it if it does not."""
        assert self._process is not None, "it was started"
        for pipe in (self._batches, self._records):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(0 if raised and raised[0] else _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __call__(self, batch: Batch) -> dict[str, npt.NDArray[Any]]:
        """Return the records of a batch.

        Raises:
            FunctionFailed: The function raised an exception, or its process ended.
            DataError: The result is not a batch of records; the message names file and row.
        """
        data = pickle.dumps(batch.columns(), protocol=5)
        with contextlib.suppress(BrokenPipeError):  # the process has ended; its last message may give the reason
            self._batches.write(LENGTH.pack(len(data)))
            self._batches.write(data)
            self._batches.flush()
        head = self._receive(f"failed at {batch.where}")
        if "wrong" in head:
            raise DataError(f"function {self.name}: {head['wrong']} (data {batch.place(head['row'], None)})")
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, kind, shape in head["arrays"]:
            if not _NUMBER.fullmatch(kind):
                raise DataError(f"function {self.name}: field {name!r} is {kind}, not a number (data {batch.where})")
            content = self._records.read(prod(shape) * np.dtype(kind).itemsize)
            arrays[name] = np.frombuffer(content, kind).reshape(shape)
        return arrays

    def _receive(self, doing: str) -> dict[str, Any]:
        size = self._records.read(LENGTH.size)
        if len(size) < LENGTH.size:
            assert self._process is not None, "it was started"
            code = self._process.wait()
            output = "\n".join(self._log.read_text(errors="replace").splitlines()[-_OUTPUT_LINES:])
            raise FunctionFailed(f"function {self.name} {doing}: its process ended with code {code}", output)
        head: dict[str, Any] = json.loads(self._records.read(LENGTH.unpack(size)[0]))
        if "error" in head:
            raise FunctionFailed(f"function {self.name} {doing}: {head['error']}", head["traceback"])
        return head


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
