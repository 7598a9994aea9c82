"""Tiny files of each format with the same documents, and a preparation without Ray."""

import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json
from regroup.workers.data.prepare.preparation import Plan, finish, plan
from regroup.workers.data.prepare.task import make_unit

DOCUMENTS = [f"document {number}: " + "word " * (number % 7) + "." for number in range(40)]


def write(folder: Path, file_format: str, documents: Sequence[str] = DOCUMENTS, files: int = 2) -> str:
    """Write documents to files of one format; return the source that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(documents) // files)
    parts = [documents[at : at + size] for at in range(0, len(documents), size)]
    if file_format == "text":
        for number, document in enumerate(documents):
            (folder / f"{number:03}.txt").write_text(document)
    for number, part in enumerate(parts):
        match file_format:
            case "jsonl":
                lines = [json.dumps({"id": n, "text": text}) for n, text in enumerate(part)]
                (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
            case "parquet":
                table = pyarrow.table({"id": list(range(len(part))), "text": list(part)})
                parquet.write_table(table, folder / f"{number}.parquet", row_group_size=4)
            case "tar":
                with tarfile.open(folder / f"{number}.tar", "w") as archive:
                    for n, text in enumerate(part):
                        for name, content in ((f"{n:03}.txt", text.encode()), (f"{n:03}.cls", b"1")):
                            member = tarfile.TarInfo(name)
                            member.size = len(content)
                            archive.addfile(member, io.BytesIO(content))
            case _:
                pass
    if file_format == "hf":
        names = [f"data-{number:05}-of-{len(parts):05}.arrow" for number in range(len(parts))]
        for name, part in zip(names, parts, strict=True):
            table = pyarrow.table({"text": list(part)})
            with pyarrow.OSFile(str(folder / name), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return str(folder)


def recipe(source: str, file_format: str, **parts: Any) -> dict[str, Any]:
    """Return a recipe as plain data."""
    return {
        "format": file_format,
        "train": [source],
        "validation": [],
        "field": None,
        "tokenizer": "byte",
        "sequence": 16,
        "function": None,
        "batch_format": "numpy",
        "batch_rows": 8,
        "code": "",
        "python": "",
        "reads": "",
        **parts,
    }


def planned(data: dict[str, Any], to: Path | str, unit_bytes: int = 1 << 20) -> Plan:
    """Return the units to make."""
    steps = plan(data, str(to), unit_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def prepared(
    data: dict[str, Any],
    to: Path | str,
    *,
    unit_bytes: int = 1 << 20,
    backwards: bool = False,
    code: str = "",
    **agent: Any,
) -> dict[str, Any]:
    """Prepare in this process, unit by unit; return the manifest."""
    scratch = Path(code or to if isinstance(to, Path) else code)
    scratch.mkdir(parents=True, exist_ok=True)
    todo = planned(data, to, unit_bytes)
    if todo.meta is not None:
        return todo.meta
    config = AgentConfig("job", "job", "node", "node", "127.0.0.1", "", "", "", **agent)
    place = {"scratch": str(scratch), "code": code, "python": {"executable": sys.executable, "venv": "", "ours": ""}}
    common = {"recipe": data, "folder": todo.folder, "agent": to_json(config)}
    names = sorted(todo.units, reverse=backwards)
    made = [
        make_unit({**common, "unit": name, "pieces": [vars(piece) for piece in todo.units[name]]}, place)
        for name in names
    ]
    return finish(todo, made)
