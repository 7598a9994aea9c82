"""Text files → token files, made once and found by the hash of their content.

    <directory>/<fingerprint>/train.bin        uint16 or uint32 token ids
                              validation.bin   where there are held-out files
                              meta.json        written last

A source is a file, a folder, a glob or a URI that fsspec reads. From a folder, all files that end in `FOLDER_SUFFIXES`
are taken, recursively, but nothing hidden; a file that is named or matched by a glob is taken whatever its name.
Files are read in the order of their URIs, each followed by the end-of-document id.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from fsspec.core import url_to_fs

from regroup.workers.node.launch import progress
from regroup.workers.state.token_file import META, DataError, too_short

FOLDER_SUFFIXES = (".txt", ".md", ".rst", ".py")
END_OF_DOCUMENT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
"""What the end-of-document id is called in a `tokenizers` file; an id of its own is added if none is there."""
_BLOCK_BYTES = 16 << 20
_EDGE_BYTES = 64 << 10


def list_sources(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """What this node sees under the sources, without reading all of it. A zygote task.

    Args:
        args: `train`, `validation` (lists of sources), `tokenizer`.
        fds: None.

    Returns:
        `files`: URI → a mark of size, beginning and end, alike on nodes that see the same file.

    Raises:
        DataError: a source is missing or unreadable.
    """
    train, validation = _split(args["train"], args["validation"])
    tokenizer = [] if args["tokenizer"] == "byte" else find(args["tokenizer"])
    return {"files": {file.uri: _mark(file) for file in [*train, *validation, *tokenizer]}}


def prepare(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Make the token files, or find them made. A zygote task.

    Args:
        args: `train`, `validation`, `tokenizer` (`byte`, or path or URI of a `tokenizers` JSON file), `sequence`, and
            `directory`, a local folder.
        fds: None.

    Returns:
        `directory` of the token files, `train` and `validation` (paths; the latter None without held-out files),
        `fingerprint`, `tokens`, `files`, `vocab_size`.

    Raises:
        DataError: a source is missing, unreadable, empty, or too short for one sample.
    """
    train, validation = _split(args["train"], args["validation"])
    tokenizer = _tokenizer(args["tokenizer"])
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


@dataclass(frozen=True)
class SourceFile:
    """One file of text, wherever it lies."""

    uri: str

    def blocks(self) -> Iterator[bytes]:
        """Its content, cut at line ends.

        Raises:
            DataError: it cannot be read.
        """
        fs, path = url_to_fs(self.uri)
        rest = b""
        try:
            with fs.open(path, "rb") as file:
                while block := cast(bytes, file.read(_BLOCK_BYTES)):
                    whole = rest + block
                    cut = whole.rfind(b"\n") + 1 or len(whole)
                    yield whole[:cut]
                    rest = whole[cut:]
        except OSError as error:
            raise DataError(f"data {self.uri!r} is not readable: {error.strerror or error}") from error
        if rest:
            yield rest


def find(source: str) -> list[SourceFile]:
    """The files of one source, in order.

    Raises:
        DataError: there are none, or the place cannot be looked at.
    """
    try:
        fs, path = url_to_fs(source)
        if any(mark in path for mark in "*?["):
            paths = [found for found in cast(list[str], fs.glob(path)) if fs.isfile(found)]
        elif fs.isdir(path):
            paths = [
                found
                for found in cast(list[str], fs.find(path))
                if found.endswith(FOLDER_SUFFIXES) and not _is_hidden(found.removeprefix(path))
            ]
        else:
            paths = [path] if fs.exists(path) else []
        files = [SourceFile(str(fs.unstrip_protocol(found))) for found in paths]
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"data {source!r} is not readable: {error}") from error
    if not files:
        raise DataError(
            f"data {source!r} names no file on this node; give an existing file, a folder with "
            f"{', '.join(FOLDER_SUFFIXES)} files, a glob or a URI"
        )
    return sorted(files, key=lambda file: file.uri)


class Tokenizer(Protocol):
    """Bytes → token ids."""

    identity: str
    """Changes when the ids it gives do."""
    vocab_size: int
    end_of_document: int

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """Ids of some whole lines."""
        ...


class ByteTokenizer:
    """A token is a byte; 256 ends a document."""

    identity = "byte"
    vocab_size = 257
    end_of_document = 256

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """The bytes themselves."""
        return np.frombuffer(block, np.uint8)


class FileTokenizer:
    """A tokenizer of the `tokenizers` library, from its JSON file."""

    def __init__(self, source: str) -> None:
        from tokenizers import Tokenizer as Library  # the byte tokenizer shall not need it

        text = b"".join(block for file in find(source) for block in file.blocks())
        try:
            self._library = Library.from_str(text.decode())
        except Exception as error:
            raise DataError(f"tokenizer {source!r} is not a tokenizers JSON file: {error}") from error
        self.identity = hashlib.sha256(text).hexdigest()
        known = [self._library.token_to_id(name) for name in END_OF_DOCUMENT]
        size = self._library.get_vocab_size()
        self.end_of_document: int = next((number for number in known if number is not None), size)
        self.vocab_size: int = max(size, self.end_of_document + 1)

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """Ids without special tokens; bytes that are not UTF-8 are replaced."""
        text = block.decode("utf-8", "replace")
        return np.array(self._library.encode(text, add_special_tokens=False).ids, np.uint32)


def _tokenizer(name: str) -> Tokenizer:
    return ByteTokenizer() if name == "byte" else FileTokenizer(name)


def _split(train: Sequence[str], validation: Sequence[str]) -> tuple[list[SourceFile], list[SourceFile]]:
    held_out = _found(validation)
    kept = [file for file in _found(train) if file not in set(held_out)]
    if not kept:
        raise DataError(f"every file of train {list(train)} is held out by validation {list(validation)}")
    return kept, held_out


def _found(sources: Sequence[str]) -> list[SourceFile]:
    return sorted({file for source in sources for file in find(source)}, key=lambda file: file.uri)


def _fingerprint(identity: str, train: Sequence[SourceFile], validation: Sequence[SourceFile]) -> str:
    # Content and order, not names: the same text mounted elsewhere is the same data.
    digest = hashlib.sha256(identity.encode())
    for part, files in (("train", train), ("validation", validation)):
        for file in files:
            content = hashlib.sha256()
            for block in file.blocks():
                content.update(block)
            digest.update(f";{part}:".encode() + content.digest())
    return digest.hexdigest()[:32]


def _make(directory: Path, fingerprint: str, tokenizer: Tokenizer, parts: Mapping[str, Sequence[SourceFile]]) -> None:
    # Made beside and renamed, so that a folder of this name is whole, whoever else makes it at the same time.
    scratch = directory.with_name(f".{fingerprint}.{os.getpid()}")
    scratch.mkdir(parents=True)
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
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


def _mark(file: SourceFile) -> str:
    fs, path = url_to_fs(file.uri)
    try:
        size = int(fs.size(path))
        digest = hashlib.sha256(cast(bytes, fs.cat_file(path, start=0, end=min(size, _EDGE_BYTES))))
        digest.update(cast(bytes, fs.cat_file(path, start=max(0, size - _EDGE_BYTES), end=size)))
    except OSError as error:
        raise DataError(f"data {file.uri!r} is not readable: {error.strerror or error}") from error
    return f"{size}:{digest.hexdigest()[:16]}"


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in relative.split("/"))
