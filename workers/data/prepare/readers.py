"""Readers for rows of text, jsonl, parquet, tar archives, and Hugging Face datasets on disk.

pyarrow is imported only where it is needed, so a node that only trains does not need it.
"""

import json
import posixpath
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

from fsspec.core import url_to_fs

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sources import TEXT_SUFFIXES, SourceFile, find

SUFFIXES = {
    "text": TEXT_SUFFIXES,
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "tar": (".tar", ".tar.gz", ".tgz"),
    "hf": (".arrow",),
}
"""Format → suffixes of the files to read from a folder."""
TEXT_FIELDS = {"text": "text", "jsonl": "text", "parquet": "text", "tar": "txt", "hf": "text"}
"""Format → default name of the field with the text of a row."""
Row = tuple[str, dict[str, Any]]
"""Position of a row in its file, in words, and its fields."""


def rows(uri: str, start: int, stop: int, file_format: str, columns: list[str] | None) -> Iterator[Row]:
    """Yield the rows of a file or of a part of it.

    Args:
        uri: URI of the file.
        start: First byte (jsonl) or row group (parquet) of the part.
        stop: End of the part; 0 means the end of the file.
        file_format: Key of `SUFFIXES`.
        columns: Columns to read from parquet and Arrow; all if None.

    Raises:
        DataError: The content does not match the format; the message names file and row.
    """
    with _understood(uri, file_format):
        match file_format:
            case "text":
                yield "the text", {"text": b"".join(SourceFile(uri).blocks()).decode("utf-8", "replace")}
            case "jsonl":
                yield from _jsonl(uri, start, stop)
            case "parquet":
                yield from _parquet(uri, start, stop, columns)
            case "tar":
                yield from _tar(uri)
            case _:
                yield from _arrow(uri, columns)


def hf_files(source: str) -> list[SourceFile]:
    """Return the Arrow files of a folder that `datasets.Dataset.save_to_disk` wrote, in the order of the rows.

    Raises:
        DataError: The folder has a different origin, or its rows were reordered without rewriting the files.
    """
    fs, path = url_to_fs(source)
    if not fs.isdir(path):
        return find(source, SUFFIXES["hf"])
    try:
        state = cast(dict[str, Any], json.loads(fs.cat_file(posixpath.join(path, "state.json"))))
    except (OSError, ValueError):
        splits = [name for name in ("train", "test", "validation") if fs.isdir(posixpath.join(path, name))]
        hint = f"; it has the splits {', '.join(splits)}; name one of them" if splits else ""
        raise DataError(
            f"data {source!r} was not written by save_to_disk: it has no readable state.json{hint}"
        ) from None
    if state.get("_indices_data_files"):
        raise DataError(f"data {source!r} has reordered or selected rows: call flatten_indices() before save_to_disk")
    return [
        SourceFile(str(fs.unstrip_protocol(posixpath.join(path, item["filename"])))) for item in state["_data_files"]
    ]


def row_groups(uri: str) -> list[int]:
    """Return the size in bytes of each row group of a parquet file.

    Raises:
        DataError: The file is not a parquet file.
    """
    from pyarrow import parquet

    fs, path = url_to_fs(uri)
    with _understood(uri, "parquet"), fs.open(path, "rb") as file:
        meta = parquet.ParquetFile(file).metadata
        return [meta.row_group(number).total_byte_size for number in range(meta.num_row_groups)]


def _jsonl(uri: str, start: int, stop: int) -> Iterator[Row]:
    """Yield the lines that start in the part."""
    fs, path = url_to_fs(uri)
    with fs.open(path, "rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()  # this line started before the part
        at, number = file.tell(), 0
        while (not stop or at < stop) and (line := cast(bytes, file.readline())):
            number += 1
            where = f"the line at byte {at}" if start else f"line {number}"
            at += len(line)
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"data {uri!r}, {where}, is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f"data {uri!r}, {where}, is {type(row).__name__}, not an object")
            yield where, cast(dict[str, Any], row)


def _parquet(uri: str, start: int, stop: int, columns: list[str] | None) -> Iterator[Row]:
    from pyarrow import parquet

    fs, path = url_to_fs(uri)
    with fs.open(path, "rb") as reader:
        file = parquet.ParquetFile(reader)
        _check_columns(uri, file.schema_arrow.names, columns)
        groups = range(start, stop or file.metadata.num_row_groups)
        number = sum(file.metadata.row_group(group).num_rows for group in range(start))
        for batch in file.iter_batches(1024, row_groups=list(groups), columns=columns):
            for row in batch.to_pylist():
                yield f"row {number}", row
                number += 1


def _arrow(uri: str, columns: list[str] | None) -> Iterator[Row]:
    import pyarrow

    fs, path = url_to_fs(uri)
    number = 0
    with fs.open(path, "rb") as reader, pyarrow.ipc.open_stream(reader) as stream:
        _check_columns(uri, stream.schema.names, columns)
        for batch in stream:
            for row in (batch.select(columns) if columns else batch).to_pylist():
                yield f"row {number}", row
                number += 1


def _tar(uri: str) -> Iterator[Row]:
    """Yield a row for consecutive files of one name: `a/1.txt` and `a/1.cls` are fields `txt` and `cls` of `a/1`."""
    fs, path = url_to_fs(uri)
    with fs.open(path, "rb") as reader, tarfile.open(fileobj=reader, mode="r|*") as archive:
        key, row = "", dict[str, Any]()
        for member in archive:
            if not member.isfile():
                continue
            folder, _, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            this = f"{folder}/{stem}" if folder else stem
            if this != key and row:
                yield f"sample {key}", row
                row = {}
            key = this
            content = archive.extractfile(member)
            assert content is not None, "the member is a regular file"
            row["__key__"] = key
            row[extension.lower()] = _decoded(uri, member.name, extension.lower(), content.read())
        if row:
            yield f"sample {key}", row


def _decoded(uri: str, name: str, extension: str, content: bytes) -> object:
    try:
        match extension.rpartition(".")[2]:
            case "txt" | "text":
                return content.decode("utf-8", "replace")
            case "json":
                return json.loads(content)
            case "cls":
                return int(content)
            case _:
                return content
    except ValueError as error:
        raise DataError(f"data {uri!r}, {name}: {error}") from error


def _check_columns(uri: str, names: list[str], columns: list[str] | None) -> None:
    for column in columns or ():
        if column not in names:
            raise DataError(f"data {uri!r} has no field {column!r}; it has {', '.join(names)}")


@contextmanager
def _understood(uri: str, file_format: str) -> Generator[None]:
    """Convert the errors that libraries raise for files of another format."""
    try:
        yield
    except DataError:
        raise
    except ModuleNotFoundError as error:
        raise DataError(
            f"reading {file_format} needs {error.name} on the nodes: install regroup[data] there"
        ) from error
    except FileNotFoundError as error:
        raise DataError(f"data {uri!r} is not readable: it has been removed") from error
    except (
        OSError,
        ValueError,
        tarfile.TarError,
        EOFError,
    ) as error:  # the errors of pyarrow derive from the first two
        raise DataError(f"data {uri!r} is not readable as {file_format}: {error}") from error
