"""A job's data function as seen from outside its process: batches of rows in, records out, errors with file and row."""

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
_SAID_LINES = 12


class FunctionFailed(DataError):
    """The data function raised, or its process ended; `traceback` is that of the function alone."""

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
        """The rows in words."""
        first, last = self.rows[0][0], self.rows[-1][0]
        return f"{self.uri!r}, {first}" if first == last else f"{self.uri!r}, {first} to {last}"

    def columns(self) -> dict[str, list[Any]]:
        """Field → its value in each row; None where a row has no such field."""
        names = dict.fromkeys(name for _, row in self.rows for name in row)
        return {name: [row.get(name) for _, row in self.rows] for name in names}

    def place(self, record: int | None, records: int | None) -> str:
        """Where a record came from: the row, if there is one for each record."""
        one_each = record is not None and (records is None or records == len(self.rows)) and record < len(self.rows)
        return f"{self.uri!r}, {self.rows[record or 0][0]}" if one_each else self.where


class DataFunction:
    """A process that runs the function; a context manager that ends it."""

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
        """Start it, and wait until the function is loaded.

        Raises:
            FunctionFailed: there is no such function, or its module raised.
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
            self._hear("could not be loaded")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Let it end, and end it if it does not."""
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
        """The records of a batch.

        Raises:
            FunctionFailed: the function raised, or its process ended.
            DataError: it returned what is no records; names file and row.
        """
        data = pickle.dumps(batch.columns(), protocol=5)
        with contextlib.suppress(BrokenPipeError):  # it has ended: it may have said why
            self._batches.write(LENGTH.pack(len(data)))
            self._batches.write(data)
            self._batches.flush()
        head = self._hear(f"failed at {batch.where}")
        if "wrong" in head:
            raise DataError(f"function {self.name}: {head['wrong']} (data {batch.place(head['row'], None)})")
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, kind, shape in head["arrays"]:
            if not _NUMBER.fullmatch(kind):
                raise DataError(f"function {self.name}: field {name!r} is {kind}, no number (data {batch.where})")
            content = self._records.read(prod(shape) * np.dtype(kind).itemsize)
            arrays[name] = np.frombuffer(content, kind).reshape(shape)
        return arrays

    def _hear(self, doing: str) -> dict[str, Any]:
        size = self._records.read(LENGTH.size)
        if len(size) < LENGTH.size:
            assert self._process is not None, "it was started"
            code = self._process.wait()
            said = "\n".join(self._log.read_text(errors="replace").splitlines()[-_SAID_LINES:])
            raise FunctionFailed(f"function {self.name} {doing}: its process ended with code {code}", said)
        head: dict[str, Any] = json.loads(self._records.read(LENGTH.unpack(size)[0]))
        if "error" in head:
            raise FunctionFailed(f"function {self.name} {doing}: {head['error']}", head["traceback"])
        return head


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
