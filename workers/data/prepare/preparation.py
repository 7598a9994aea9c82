"""Plan a preparation and write its manifest. ray_pipeline.py runs the tasks for the units in between.

<datasets_uri>/<fingerprint>/train-00000.json                result of a unit
                             train-00000-0123456789ab.bin    its records
                             meta.json                       manifest, written last; only files in it count
"""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare.partitioning import SMALLEST_UNIT_BYTES, Piece, size_bytes, units
from regroup.workers.data.prepare.recipe import Recipe
from regroup.workers.data.prepare.record_format import describe_fields
from regroup.workers.data.prepare.task import LABEL, LABELS, TOKENS
from regroup.workers.data.sources import SourceFile, find, mark
from regroup.workers.data.tokenizers import tokenizer_of
from regroup.workers.storage import fsspec_storage

META = "meta.json"
Report = dict[str, Any]
"""`progress` (0 to 1, or None) and `message`."""
_READERS = 4


def list_sources(data: Mapping[str, Any]) -> dict[str, str]:
    """List the files of the sources on this node as URI → digest of size, start and end, without reading them whole.

    Raises:
        DataError: A source is missing or unreadable.
    """
    recipe = Recipe.of(data)
    tokenizer = [] if recipe.tokenizer == "byte" else find(recipe.tokenizer)
    files = [file for part in recipe.files().values() for file in part]
    return {file.uri: mark(file) for file in [*files, *tokenizer]}


@dataclass(frozen=True)
class Plan:
    """Plan of a preparation."""

    recipe: Recipe
    fingerprint: str
    folder: str
    """URI of the records."""
    vocab_size: int | None
    """Vocabulary size of the tokenizer; None if a function makes the records."""
    files: Mapping[str, Sequence[SourceFile]]
    units: Mapping[str, Sequence[Piece]]
    """Name of a unit → its pieces."""
    meta: dict[str, Any] | None
    """Manifest of an earlier preparation with the same fingerprint, if there is one."""


def plan(
    data: Mapping[str, Any], datasets_uri: str, smallest_unit_bytes: int = SMALLEST_UNIT_BYTES
) -> Generator[Report, None, Plan]:
    """Read all sources once for the fingerprint, and check whether the records exist.

    Raises:
        DataError: A source is missing or unreadable.
    """
    recipe = Recipe.of(data)
    files = recipe.files()
    tokenizer = tokenizer_of(recipe.tokenizer)
    content = yield from _hashes(files)
    fingerprint = recipe.fingerprint(tokenizer.identity, content)
    folder = fsspec_storage.join(datasets_uri, fingerprint)
    found = fsspec_storage.read_bytes(fsspec_storage.join(folder, META))
    meta: dict[str, Any] | None = None if found is None else json.loads(found)
    cut: dict[str, Sequence[Piece]] = {}
    if meta is None:
        for part, of_part in files.items():
            pieces = units(of_part, recipe.format, smallest_unit_bytes)
            cut |= {f"{part}-{number:05}": unit for number, unit in enumerate(pieces)}
    vocab_size = None if recipe.function else tokenizer.vocab_size
    return Plan(recipe, fingerprint, folder, vocab_size, files, cut, meta)


def finish(plan: Plan, made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write the manifest of all units and return it.

    Raises:
        DataError: There are no records, or the fields differ between units.
    """
    splits: dict[str, Any] = {}
    units_made = {unit["unit"]: unit for unit in made}
    whole = [(name, units_made[name]) for name in plan.units]
    filled = [(name, unit) for name, unit in whole if unit["records"]]
    for name, unit in filled:
        if unit["fields"] != filled[0][1]["fields"]:
            raise DataError(
                f"records differ between files: {describe_fields(filled[0][1]['fields'])} of "
                f"{plan.units[filled[0][0]][0].uri!r} and others, {describe_fields(unit['fields'])} of "
                f"{plan.units[name][0].uri!r} and others"
            )
    for part, files in plan.files.items():
        of_part = [unit for name, unit in whole if name.startswith(f"{part}-")]
        records = sum(unit["records"] for unit in of_part)
        if not records:
            raise DataError(_nothing(plan.recipe, part, files, sum(unit["tokens"] for unit in of_part)))
        splits[part] = {
            "records": records,
            "tokens": sum(unit["tokens"] for unit in of_part),
            "dropped_tokens": sum(unit["dropped"] for unit in of_part),
            "files": [
                {"name": unit["file"], **{key: unit[key] for key in ("records", "size_bytes", "sha256")}}
                for unit in of_part
                if unit["file"]
            ],
        }
    largest = [unit["largest"].get(field, 0) for _, unit in filled for field in (TOKENS, LABELS, LABEL)]
    meta = {
        "kind": "records",
        "fingerprint": plan.fingerprint,
        "fields": filled[0][1]["fields"],
        "vocab_size": plan.vocab_size or max(largest) + 1,
        "splits": splits,
        "sources": {part: [file.uri for file in files] for part, files in plan.files.items()},
        "recipe": asdict(plan.recipe),
    }
    text = json.dumps(meta, indent=1)
    fsspec_storage.publish_bytes(fsspec_storage.join(plan.folder, META), text.encode())
    return json.loads(text)


def summary(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of the prepared data for the nodes of a job."""
    return {
        "kind": "records",
        "fingerprint": meta["fingerprint"],
        "vocab_size": meta["vocab_size"],
        "records": {part: split["records"] for part, split in meta["splits"].items()},
        "tokens": meta["splits"]["train"]["tokens"],
        "dropped_tokens": sum(split["dropped_tokens"] for split in meta["splits"].values()),
    }


def _nothing(recipe: Recipe, part: str, files: Sequence[SourceFile], tokens: int) -> str:
    named = ", ".join(file.uri for file in files[:3]) + (", …" if len(files) > 3 else "")
    if recipe.function:
        return f"{part} data ({named}): function {recipe.function} made no records from it"
    return (
        f"{part} data ({named}) has {tokens} tokens, fewer than one record of {recipe.sequence} + 1; give more text or "
        "a shorter sequence"
    )


def _hashes(files: Mapping[str, Sequence[SourceFile]]) -> Generator[Report, None, dict[str, list[str]]]:
    whole = [file for part in files.values() for file in part]
    size, done = sum(size_bytes(file) for file in whole), 0
    hashes: dict[str, str] = {}
    with ThreadPoolExecutor(_READERS) as readers:
        for file, (digest, read_bytes) in zip(whole, readers.map(_hash, whole), strict=True):
            hashes[file.uri] = digest
            done += read_bytes
            yield {"progress": None, "message": f"reading sources: {done >> 20} of {size >> 20} MiB"}
    return {part: [hashes[file.uri] for file in of_part] for part, of_part in files.items()}


def _hash(file: SourceFile) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for block in file.blocks():
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size
