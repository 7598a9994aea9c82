"""The list of pieces comes back as it went, and names no file outside of the job's checkpoints."""

import json
import zlib

import pytest

from regroup.workers.contract.checkpoint_manifest import (
    FileChunks,
    ManifestError,
    Piece,
    Pieces,
    beside,
    checked_name,
    merge,
    older_place,
    unpack_pieces,
    used_files,
)

PIECE = Piece("w", "float32", (4, 2), (2, 0), (2, 2), "__1_0.distcp", 0, 900, 700, 16, 5, "ab" * 16)
LIST = Pieces({"__1_0.distcp": FileChunks(900, (7,)), "facts-1.json": FileChunks(2, (8,))}, (PIECE,))


def test_a_list_comes_back_as_it_went() -> None:
    assert unpack_pieces(LIST.packed()) == LIST
    other = Pieces({"__0_0.distcp": FileChunks(1, (1,))}, ())
    assert merge([other, LIST]) == Pieces({**other.files, **LIST.files}, (PIECE,))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no list", "damaged"),
        (LIST.packed()[:-3], "incomplete"),
        (zlib.compress(b"[]"), "damaged"),
        (zlib.compress(json.dumps({"version": 1, "chunk_bytes": 1}).encode()), "version 1"),
    ],
)
def test_a_damaged_list_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        unpack_pieces(data)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../../x", "../step-1.gen-1/../x", "../step-1.gen-1/a/b", ".."]
)
def test_files_outside_of_the_checkpoints_are_refused(name: str) -> None:
    with pytest.raises(ManifestError, match="outside"):
        checked_name(name)
    packed = Pieces({name: FileChunks(1, (1,))}, ()).packed()
    with pytest.raises(ManifestError, match="outside"):
        unpack_pieces(packed)


def test_files_of_older_checkpoints_have_relative_names() -> None:
    assert beside("__0_0.distcp", "step-8.gen-1") == "../step-8.gen-1/__0_0.distcp"
    assert beside("../step-4.gen-1/__0_0.distcp", "step-8.gen-1") == "../step-4.gen-1/__0_0.distcp"
    assert checked_name("../step-8.gen-1/__0_0.distcp") == "../step-8.gen-1/__0_0.distcp"
    assert older_place("../step-8.gen-1/__0_0.distcp") == ("step-8.gen-1", "__0_0.distcp")
    assert older_place("deep/__0_0.distcp") is None
    files = [{"name": "../step-8.gen-1/__0_0.distcp"}, {"name": "__1_0.distcp"}]
    assert used_files({"files": files}) == {("step-8.gen-1", "__0_0.distcp")}
    with pytest.raises(ManifestError, match="damaged"):
        used_files({})
