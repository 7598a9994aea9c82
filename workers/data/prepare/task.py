"""Task for one unit: read its pieces, make records, write them into one file, publish it.

A repeated task makes the same file, so a task that died is repeated. The task publishes the file under a name with its
hash, then a note that names the file. A task that finds the note skips the work.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.error_classes import DataError
from regroup.workers.contract.messages import from_json
from regroup.workers.data.prepare import readers
from regroup.workers.data.prepare.packing import Packer
from regroup.workers.data.prepare.partitioning import Piece
from regroup.workers.data.prepare.recipe import Recipe
from regroup.workers.data.prepare.record_format import Arrays, RecordFile, WrongRecord
from regroup.workers.data.prepare.user_function import Batch, DataFunction
from regroup.workers.data.sources import SourceFile
from regroup.workers.data.tokenizers import token_dtype, tokenizer_of
from regroup.workers.environment.interpreter import activated
from regroup.workers.environment.process_env import data_function_environment
from regroup.workers.storage import fsspec_storage

TOKENS, LABELS = "tokens", "labels"
IMAGE, LABEL = "image", "label"
_FLUSH_TOKENS = 1 << 18


def make_unit(order: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    """Make a unit unless it exists, and return its description.

    Args:
        order: `recipe`, `folder` (URI), `unit` (its name), `pieces`, `agent` (the job's `AgentConfig` as plain data).
        place: Folders of the job on this node, `scratch` and `code`, and `python`, its interpreter
            (`JobPython.place`).

    Returns:
        `unit`, `file` (None without records), `tokens`, `dropped`, and the result of `RecordFile.close`.

    Raises:
        DataError: The data or the output of the function is invalid; the message names file and row.
        StorageError: The file could not be stored.
    """
    recipe = Recipe.of(order["recipe"])
    note = fsspec_storage.join(order["folder"], f"{order['unit']}.json")
    if (found := fsspec_storage.read_bytes(note)) is not None:
        return json.loads(found)
    pieces = [Piece(**piece) for piece in order["pieces"]]
    with tempfile.TemporaryDirectory(prefix="prepare-", dir=place["scratch"]) as scratch:
        file = RecordFile(Path(scratch) / "records")
        if recipe.function is None:
            counts = _pack(recipe, pieces, file)
        else:
            counts = _map(recipe, pieces, file, order["agent"], place, Path(scratch))
        made: dict[str, Any] = {"unit": order["unit"], "file": None, **counts, **file.close()}
        if made["records"]:
            made["file"] = f"{order['unit']}-{made['sha256'][:12]}.bin"
            fsspec_storage.publish(file.path, fsspec_storage.join(order["folder"], made["file"]))
    fsspec_storage.publish_bytes(note, json.dumps(made).encode())
    return made


def _pack(recipe: Recipe, pieces: list[Piece], file: RecordFile) -> dict[str, int]:
    assert recipe.sequence is not None, "the spec was checked"
    tokenizer = tokenizer_of(recipe.tokenizer)
    packer = Packer(recipe.sequence, tokenizer.end_of_document, token_dtype(tokenizer.vocab_size))
    for piece in pieces:
        for text, is_end in _texts(recipe, piece):
            packer.add(tokenizer.encode(text))
            if is_end:
                packer.end_document()
            if packer.held >= max(_FLUSH_TOKENS, 2 * recipe.sequence):
                file.append({TOKENS: packer.pop_records()})
    file.append({TOKENS: packer.pop_records()})
    return {"tokens": packer.tokens, "dropped": packer.dropped}


def _texts(recipe: Recipe, piece: Piece) -> Iterator[tuple[bytes, bool]]:
    """Yield text, and True if a document ends with it."""
    if recipe.format == "text":
        for block in SourceFile(piece.uri).blocks():
            yield block, False
        yield b"", True
        return
    field = recipe.text_field
    column = field.split(".", 1)[0]
    for where, row in readers.rows(piece.uri, piece.start, piece.stop, recipe.format, [column]):
        value = _lookup(row, field)
        if value is None:
            has = "its value is null" if field in row else f"its fields are {', '.join(row)}"
            raise DataError(f"data {piece.uri!r}, {where}, has no field {field!r}: {has}")
        if not isinstance(value, str | bytes):
            raise DataError(f"data {piece.uri!r}, {where}: field {field!r} is {type(value).__name__}, not text")
        yield value.encode("utf-8", "replace") if isinstance(value, str) else value, True


def _lookup(row: Mapping[str, Any], field: str) -> object:
    """Return the field `a.b`, or the field `b` of the object `a`."""
    if field in row:
        return row[field]
    head, _, rest = field.partition(".")
    inner = row.get(head)
    return _lookup(cast(Mapping[str, Any], inner), rest) if rest and isinstance(inner, Mapping) else None


def _map(
    recipe: Recipe, pieces: list[Piece], file: RecordFile, agent: Mapping[str, Any], place: Mapping[str, Any], to: Path
) -> dict[str, int]:
    config = from_json(agent)
    assert isinstance(config, AgentConfig) and recipe.function is not None
    function = DataFunction(
        recipe.function,
        recipe.batch_format,
        interpreter=place["python"]["executable"],
        cwd=Path(place["code"] or to),
        env=activated(data_function_environment(config), place["python"], config),
        log=to / "function.log",
    )
    with function:
        for piece in pieces:
            for batch in _batches(recipe, piece):
                arrays = function(batch)
                try:
                    _CHECKS[recipe.reads](recipe, arrays)
                    file.append(arrays)
                except WrongRecord as error:
                    raise DataError(f"function {function.name}: {error} (data {batch.where})") from error
    tokens = file.records * (recipe.sequence or 0) if recipe.reads == "tokens" else 0
    return {"tokens": tokens, "dropped": 0}


def _batches(recipe: Recipe, piece: Piece) -> Iterator[Batch]:
    rows: list[readers.Row] = []
    for row in readers.rows(piece.uri, piece.start, piece.stop, recipe.format, None):
        rows.append(row)
        if len(rows) == recipe.batch_rows:
            yield Batch(piece.uri, rows)
            rows = []
    if rows:
        yield Batch(piece.uri, rows)


def _check_nothing(recipe: Recipe, arrays: Arrays) -> None:
    """Accept any records: a user's own training function reads them."""


def _check_images(_: Recipe, arrays: Arrays) -> None:
    """Check the fields `image` and `label` that the built-in trainer reads."""
    shapes = {name: values.shape[1:] for name, values in arrays.items()}
    if len(shapes.get(IMAGE, ())) != 3 or shapes.get(LABEL) != () or arrays[LABEL].dtype.kind not in "iu":
        present = ", ".join(f"{name} {arrays[name].dtype} {shape}" for name, shape in sorted(shapes.items()))
        raise WrongRecord(
            f"the built-in trainer needs {IMAGE!r} of shape (channels, height, width) and {LABEL!r}, one integer; "
            f"the records have {present}"
        )
    if arrays[LABEL].size and int(arrays[LABEL].min()) < 0:
        raise WrongRecord(f"field {LABEL!r} is negative in record {int(arrays[LABEL].argmin())} of the batch")


def _check_tokens(recipe: Recipe, arrays: Arrays) -> None:
    """Check the fields that the built-in trainer reads: `tokens` with the last label, or `tokens` and `labels`."""
    sequence = recipe.sequence or 0
    shapes = {name: values.shape[1:] for name, values in arrays.items()}
    if TOKENS not in shapes or any(arrays[name].dtype.kind not in "iu" for name in {TOKENS, LABELS} & shapes.keys()):
        raise WrongRecord(f"the built-in trainer needs the integer field {TOKENS!r}; the records have {sorted(shapes)}")
    tokens = arrays[TOKENS]
    if tokens.size and int(tokens.min()) < 0:
        record = int(np.argwhere(tokens.min(axis=tuple(range(1, tokens.ndim))) < 0)[0, 0])
        raise WrongRecord(f"field {TOKENS!r} is negative in record {record} of the batch")
    expected = (sequence,) if LABELS in shapes else (sequence + 1,)
    for name in (TOKENS, LABELS):
        if shapes.get(name, expected) != expected:
            raise WrongRecord(
                f"field {name!r} has shape {shapes[name]}, but training.sequence {sequence} requires {expected}: "
                f"{TOKENS!r} of sequence + 1, or {TOKENS!r} and {LABELS!r} of sequence"
            )


_CHECKS = {"": _check_nothing, "tokens": _check_tokens, "images": _check_images}
"""Fields that the built-in trainer reads → check of the records."""
