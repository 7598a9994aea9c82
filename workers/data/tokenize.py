"""Tokenize text files into token files. The hash of the content identifies them, so they are written only once.

<directory>/<fingerprint>/train.bin        uint16 or uint32 token ids
                          validation.bin   if there are held-out files
                          meta.json        written last
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sources import SourceFile, find, mark, split
from regroup.workers.data.token_file import META, too_short
from regroup.workers.data.tokenizers import Tokenizer, token_dtype, tokenizer_of
from regroup.workers.zygote.launch import progress


def list_sources(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """List the files of the sources on this node without reading them completely. A zygote task.

    Args:
        args: `train`, `validation` (lists of sources), `tokenizer`.
        fds: None.

    Returns:
        `files`: URI → digest of size, start and end, equal on nodes that see the same file.

    Raises:
        DataError: A source is missing or unreadable.
    """
    train, validation = split(args["train"], args["validation"])
    tokenizer = [] if args["tokenizer"] == "byte" else find(args["tokenizer"])
    return {"files": {file.uri: mark(file) for file in [*train, *validation, *tokenizer]}}


def prepare(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Write the token files unless they exist. A zygote task.

    Args:
        args: `train`, `validation`, `tokenizer` (`byte`, or path or URI of a `tokenizers` JSON file), `sequence`, and
            `directory`, a local folder.
        fds: None.

    Returns:
        `directory` of the token files, `train` and `validation` (paths; the latter None without held-out files),
        `fingerprint`, `tokens`, `files`, `vocab_size`.

    Raises:
        DataError: A source is missing, unreadable, empty, or too short for one sample.
    """
    train, validation = split(args["train"], args["validation"])
    tokenizer = tokenizer_of(args["tokenizer"])
    fingerprint = _fingerprint(tokenizer.identity, train, validation)
    directory = Path(args["directory"]) / fingerprint
    if not (directory / META).exists():
        _make(directory, fingerprint, tokenizer, {"train": train, "validation": validation})
    meta = json.loads((directory / META).read_text())
    for name, count in meta["tokens"].items():
        if count <= args["sequence"]:
            raise DataError(too_short(f"{name} data ({', '.join(args[name])})", count, args["sequence"]))
    return {
        "directory": str(directory),
        "train": str(directory / "train.bin"),
        "validation": str(directory / "validation.bin") if "validation" in meta["tokens"] else None,
        "fingerprint": fingerprint,
        "tokens": meta["tokens"]["train"],
        "files": len(train) + len(validation),
        "vocab_size": meta["vocab_size"],
    }


def _fingerprint(identity: str, train: Sequence[SourceFile], validation: Sequence[SourceFile]) -> str:
    # Content and order count, not names: the same text at another mount point is the same data.
    digest = hashlib.sha256(identity.encode())
    for part, files in (("train", train), ("validation", validation)):
        for file in files:
            content = hashlib.sha256()
            for block in file.blocks():
                content.update(block)
            digest.update(f";{part}:".encode() + content.digest())
    return digest.hexdigest()[:32]


def _make(directory: Path, fingerprint: str, tokenizer: Tokenizer, parts: Mapping[str, Sequence[SourceFile]]) -> None:
    # Written to a draft folder and renamed: a folder of this name is complete even with several writers.
    scratch = directory.with_name(f".{fingerprint}.{os.getpid()}")
    scratch.mkdir(parents=True)
    dtype = token_dtype(tokenizer.vocab_size)
    try:
        tokens = {
            name: _write(scratch / f"{name}.bin", files, tokenizer, dtype) for name, files in parts.items() if files
        }
        meta = {
            "fingerprint": fingerprint,
            "tokens": tokens,
            "dtype": dtype.name,
            "vocab_size": tokenizer.vocab_size,
            "end_of_document": tokenizer.end_of_document,
            "files": {n: [f.uri for f in fs] for n, fs in parts.items()},
        }
        (scratch / META).write_text(json.dumps(meta, indent=1))
        try:
            scratch.rename(directory)
        except OSError:
            if not (directory / META).exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(path: Path, files: Sequence[SourceFile], tokenizer: Tokenizer, dtype: np.dtype[Any]) -> int:
    end = np.array([tokenizer.end_of_document], dtype).tobytes()
    count = 0
    with path.open("wb") as out:
        for number, file in enumerate(files):
            if number * 100 // len(files) != (number - 1) * 100 // len(files):
                progress(number / len(files), f"{path.stem}: {number} of {len(files)} files, {count} tokens")
            before = count
            for block in file.blocks():
                ids = tokenizer.encode(block)
                out.write(ids.astype(dtype).tobytes())
                count += len(ids)
            if count > before:
                out.write(end)
                count += 1
    if count == 0:
        raise DataError(f"data is empty: {', '.join(file.uri for file in files)}")
    return count
