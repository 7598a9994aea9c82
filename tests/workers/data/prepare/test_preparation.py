"""Records from files of every format: the same ones however they are cut into tasks, and clear errors for bad files."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.datasets import TokenSamples
from regroup.workers.data.prepare.readers import SUFFIXES
from regroup.workers.data.record_files import RecordFiles
from tests.support.inputs.data_inputs import DOCUMENTS, planned, prepared, recipe, write

FORMATS = sorted(SUFFIXES)


def stream(documents: list[str]) -> list[int]:
    """Return the tokens of documents, each followed by the end-of-document id."""
    return [token for document in documents for token in [*document.encode(), 256]]


def tokens(to: Path, meta: dict[str, Any], part: str = "train") -> list[list[int]]:
    records = RecordFiles(to / meta["fingerprint"], part)
    return records[list(range(len(records)))]["tokens"].tolist()


@pytest.mark.parametrize("file_format", FORMATS)
def test_documents_become_records_end_to_end(tmp_path: Path, file_format: str) -> None:
    meta = prepared(recipe(write(tmp_path / "in", file_format), file_format), tmp_path / "out")
    whole = stream(DOCUMENTS)
    count = (len(whole) - 1) // 16
    assert tokens(tmp_path / "out", meta) == [whole[n * 16 : n * 16 + 17] for n in range(count)]
    split = meta["splits"]["train"]
    assert (split["tokens"], split["dropped_tokens"]) == (len(whole), len(whole) - 1 - count * 16)
    assert (meta["vocab_size"], meta["fields"]) == (257, [["tokens", "<u2", [17]]])


@pytest.mark.parametrize("file_format", FORMATS)
def test_units_do_not_depend_on_the_order_they_are_made_in(tmp_path: Path, file_format: str) -> None:
    data = recipe(write(tmp_path / "in", file_format), file_format)
    one = prepared(data, tmp_path / "one", unit_bytes=200)
    other = prepared(data, tmp_path / "other", unit_bytes=200, backwards=True)
    assert one == other
    assert len(one["splits"]["train"]["files"]) > 1
    assert tokens(tmp_path / "one", one) == tokens(tmp_path / "other", other)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_parts_of_one_file_hold_each_row_once(tmp_path: Path, file_format: str) -> None:
    source = write(tmp_path / "in", file_format, files=1)
    for unit_bytes in (64, 100, 333, 1000):
        data = recipe(source, file_format, sequence=1)  # a record is a token and its label: none is left out but ends
        meta = prepared(data, tmp_path / str(unit_bytes), unit_bytes=unit_bytes)
        assert meta["splits"]["train"]["tokens"] == len(stream(DOCUMENTS))


def test_only_files_with_separable_rows_are_read_in_parts(tmp_path: Path) -> None:
    for file_format, units in (("jsonl", 10), ("parquet", 10), ("tar", 1), ("hf", 1)):
        source = write(tmp_path / file_format, file_format, files=1)
        found = planned(recipe(source, file_format), tmp_path / "out", unit_bytes=150).units
        assert len(found) >= units if units > 1 else len(found) == 1, file_format


def test_what_is_made_is_found_and_what_is_half_made_is_finished(tmp_path: Path) -> None:
    data = recipe(write(tmp_path / "in", "jsonl"), "jsonl")
    out = tmp_path / "out"
    meta = prepared(data, out, unit_bytes=300)
    folder = out / meta["fingerprint"]
    assert planned(data, out).meta == meta
    # A preparation that died: no manifest, one unit torn before its note was written, another one whole.
    (folder / "meta.json").unlink()
    torn = meta["splits"]["train"]["files"][0]["name"]
    (folder / torn).write_bytes(b"torn")
    (folder / "train-00000.json").unlink()
    whole = folder / meta["splits"]["train"]["files"][1]["name"]
    made_at = whole.stat().st_mtime_ns
    assert planned(data, out).meta is None
    assert prepared(data, out, unit_bytes=300) == meta
    assert (folder / torn).stat().st_size == meta["splits"]["train"]["files"][0]["size_bytes"]
    assert whole.stat().st_mtime_ns == made_at


def test_the_fingerprint_is_of_content_and_recipe_and_not_of_names(tmp_path: Path) -> None:
    one = recipe(write(tmp_path / "a", "jsonl"), "jsonl")
    here = planned(one, tmp_path / "out").fingerprint
    assert planned(recipe(write(tmp_path / "b", "jsonl"), "jsonl"), tmp_path / "out").fingerprint == here
    changed = recipe(write(tmp_path / "c", "jsonl", [*DOCUMENTS[:-1], "other"]), "jsonl")
    others = [changed, {**one, "sequence": 8}, {**one, "field": "id"}, {**one, "function": "a:b"}, {**one, "code": "x"}]
    assert here not in {planned(other, tmp_path / "out").fingerprint for other in others}


def test_held_out_files_are_not_trained_on(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "jsonl")
    data = recipe(source, "jsonl", validation=[f"{source}/1.jsonl"])
    meta = prepared(data, tmp_path / "out")
    for part, documents in (("train", DOCUMENTS[:20]), ("validation", DOCUMENTS[20:])):
        assert meta["splits"][part]["tokens"] == len(stream(documents))


def test_a_text_in_an_object_is_found_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"doc": {"body": text}}) for text in DOCUMENTS))
    meta = prepared(recipe(str(tmp_path / "in.jsonl"), "jsonl", field="doc.body"), tmp_path / "out")
    assert meta["splits"]["train"]["tokens"] == len(stream(DOCUMENTS))


def test_the_trainer_reads_records_as_it_reads_a_token_file(tmp_path: Path) -> None:
    meta = prepared(recipe(write(tmp_path / "in", "jsonl"), "jsonl"), tmp_path / "out", unit_bytes=300)
    records = RecordFiles(tmp_path / "out" / meta["fingerprint"], "train")
    samples = TokenSamples(records, 16)
    last = len(samples) - 1
    inputs, labels = samples.rows([last, 0])
    assert inputs.shape == labels.shape == (2, 16)
    assert inputs[1].tolist() == stream(DOCUMENTS)[:16] and labels[1].tolist() == stream(DOCUMENTS)[1:17]
    with pytest.raises(DataError, match=r"training\.sequence is 8"):
        TokenSamples(records, 8)
    with pytest.raises(IndexError, match=f"record {last + 1} of {last + 1}"):
        records[[last + 1]]


def corrupted(tmp_path: Path, file_format: str, content: bytes) -> str:
    source = Path(write(tmp_path / "in", file_format))
    file = next(path for path in sorted(source.iterdir()) if path.suffix != ".json")
    file.write_bytes(content)
    return str(source)


@pytest.mark.parametrize("file_format", ["parquet", "tar", "hf"])
def test_a_corrupt_file_is_named(tmp_path: Path, file_format: str) -> None:
    source = corrupted(tmp_path, file_format, os.urandom(5000))
    with pytest.raises(DataError, match=rf"{source}/.*0.* is not readable as {file_format}"):
        prepared(recipe(source, file_format), tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"text": "a"}\n{"text": \n', "line 2, is not JSON"),
        (b'{"text": "a"}\n[1]\n', "line 2, is list, not an object"),
        (b'{"text": "a"}\n{"body": "b"}\n', "line 2, has no field 'text': its fields are body"),
        (b'{"text": null}\n', "line 1, has no field 'text': its value is null"),
        (b'{"text": 3}\n', "line 1: field 'text' is int, not text"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as error:
        prepared(recipe(corrupted(tmp_path, "jsonl", line), "jsonl"), tmp_path / "out")
    assert "0.jsonl" in str(error.value)


@pytest.mark.parametrize("file_format", ["parquet", "hf"])
def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, file_format: str) -> None:
    data = recipe(write(tmp_path / "in", file_format), file_format, field="body")
    with pytest.raises(DataError, match=r"has no field 'body'; it has .*text"):
        prepared(data, tmp_path / "out")


def test_nothing_to_train_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names no file on this node"):
        prepared(recipe(str(tmp_path / "nowhere"), "jsonl"), tmp_path / "out")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty.jsonl\) has 0 tokens, fewer than one record of 16 \+ 1"):
        prepared(recipe(str(tmp_path / "empty.jsonl"), "jsonl"), tmp_path / "out")


def test_a_hugging_face_folder_that_is_not_one_split_is_explained(tmp_path: Path) -> None:
    write(tmp_path / "in" / "train", "hf")
    with pytest.raises(DataError, match="it has the splits train; name one of them"):
        prepared(recipe(str(tmp_path / "in"), "hf"), tmp_path / "out")
    state = tmp_path / "in" / "train" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "_indices_data_files": [{"filename": "i.arrow"}]}))
    with pytest.raises(DataError, match="flatten_indices"):
        prepared(recipe(str(tmp_path / "in" / "train"), "hf"), tmp_path / "out")


def test_large_ids_take_four_bytes(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    vocabulary = {f"word{number}": number for number in range(70_000)}
    tokenizer = Tokenizer(WordLevel({**vocabulary, "?": 70_000}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "word69999 word5 word6"}))
    data = recipe(str(tmp_path / "in.jsonl"), "jsonl", tokenizer=str(tmp_path / "words.json"), sequence=3)
    meta = prepared(data, tmp_path / "out")
    assert meta["fields"] == [["tokens", "<u4", [4]]]
    assert tokens(tmp_path / "out", meta) == [[69_999, 5, 6, 70_001]]
    assert np.dtype("<u4").itemsize * 4 == meta["splits"]["train"]["files"][0]["size_bytes"]
