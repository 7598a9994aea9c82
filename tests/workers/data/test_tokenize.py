"""Text is tokenized once for each content, and missing files are named."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sources import find
from regroup.workers.data.token_file import TokenFile
from regroup.workers.data.tokenize import list_sources, prepare


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "library"
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "b.py").write_bytes(b"import os\n" * 4)
    (root / "sub" / "a.txt").write_bytes(b"hello\n" * 5)
    (root / "sub" / ".git" / "c.txt").write_bytes(b"hidden")
    (root / "logo.png").write_bytes(b"\x89PNG")
    return root


def made(tmp_path: Path, *train: Path | str, **options: Any) -> dict[str, Any]:
    return prepare(
        {
            "train": [str(source) for source in train],
            "validation": [],
            "tokenizer": "byte",
            "sequence": 8,
            "directory": str(tmp_path / "out"),
            **options,
        },
        [],
    )


def tokens_of(path: str) -> list[int]:
    meta = json.loads((Path(path).parent / "meta.json").read_text())
    return np.fromfile(path, meta["dtype"]).tolist()


def test_a_folder_gives_its_text_files_in_order_each_with_an_end(tmp_path: Path, library: Path) -> None:
    result = made(tmp_path, library)
    assert tokens_of(result["train"]) == [*b"import os\n" * 4, 256, *b"hello\n" * 5, 256]
    assert (result["tokens"], result["files"], result["vocab_size"], result["validation"]) == (72, 2, 257, None)
    tokens = TokenFile(Path(result["train"]))
    assert tokens.fingerprint == result["fingerprint"]
    assert tokens.records(8) == 8
    rows, labels = tokens.rows([1], 8)
    assert rows[0].tolist() == list((b"import os\n" * 4)[8:16])
    assert labels[0].tolist() == list((b"import os\n" * 4)[9:17])


def test_globs_files_and_uris_name_the_same_things(library: Path) -> None:
    assert (
        find(str(library / "s*" / "*.txt"))
        == find(str(library / "sub" / "a.txt"))
        == find(f"file://{library}/sub/a.txt")
    )
    assert [file.uri for file in find(str(library / "*.png"))] == [f"file://{library}/logo.png"]


def test_the_same_content_elsewhere_is_the_same_data_and_not_made_again(tmp_path: Path, library: Path) -> None:
    first = made(tmp_path, library)
    stamp = Path(first["train"]).stat().st_mtime_ns
    library.rename(tmp_path / "moved")
    assert made(tmp_path, tmp_path / "moved") == first
    assert Path(first["train"]).stat().st_mtime_ns == stamp
    (tmp_path / "moved" / "b.py").write_text("changed, and long enough")
    assert made(tmp_path, tmp_path / "moved")["fingerprint"] != first["fingerprint"]


def test_held_out_files_are_left_out_of_training(tmp_path: Path, library: Path) -> None:
    result = made(tmp_path, library, validation=[str(library / "sub")])
    assert tokens_of(result["train"]) == [*b"import os\n" * 4, 256]
    assert tokens_of(result["validation"]) == [*b"hello\n" * 5, 256]
    with pytest.raises(DataError, match="every file of train"):
        made(tmp_path, library / "b.py", validation=[str(library)])


def test_an_interrupted_preparation_is_made_again(tmp_path: Path, library: Path) -> None:
    result = made(tmp_path, library)
    (Path(result["directory"]) / "meta.json").unlink()
    (Path(result["directory"]) / "train.bin").unlink()
    assert made(tmp_path, library)["tokens"] == 72
    assert [path.name for path in (tmp_path / "out").iterdir()] == [result["fingerprint"]]


def test_a_tokenizers_file_is_used_as_it_says(tmp_path: Path, library: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"import": 0, "os": 1, "hello": 2, "?": 3, "</s>": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    result = made(tmp_path, library, tokenizer=str(tmp_path / "tokenizer.json"))
    assert tokens_of(result["train"]) == [0, 1] * 4 + [4] + [2] * 5 + [4]
    assert result["vocab_size"] == 5
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json' is not a tokenizers JSON file"):
        made(tmp_path, library, tokenizer=str(tmp_path / "tokenizer.json"))


def test_ids_beyond_two_bytes_get_four(tmp_path: Path, library: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({**{f"w{i}": i for i in range(70_000)}, "os": 70_000, "?": 70_001}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "big.json"))
    result = made(tmp_path, library / "b.py", tokenizer=str(tmp_path / "big.json"), sequence=4)
    assert tokens_of(result["train"]) == [70_001, 70_000] * 4 + [70_002]
    assert result["vocab_size"] == 70_003


@pytest.mark.parametrize("source", ["absent.txt", "absent/", "*.absent", "nowhere://x/y"])
def test_what_is_missing_is_named(tmp_path: Path, source: str) -> None:
    name = source if "://" in source else str(tmp_path / source)
    with pytest.raises(DataError) as error:
        made(tmp_path, name)
    assert repr(name) in str(error.value)


def test_a_folder_without_text_is_refused(tmp_path: Path, library: Path) -> None:
    (library / "b.py").unlink()
    (library / "sub" / "a.txt").unlink()
    with pytest.raises(DataError, match=r"names no file.*\.txt"):
        made(tmp_path, library)


def test_an_unreadable_file_is_named(tmp_path: Path, library: Path) -> None:
    (library / "b.py").unlink()
    (library / "b.py").symlink_to(library / "b.py")
    with pytest.raises(DataError, match=r"b\.py"):
        made(tmp_path, library / "b.py")


def test_empty_and_short_data_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"data is empty: .*empty\.txt"):
        made(tmp_path, tmp_path / "empty.txt")
    (tmp_path / "short.txt").write_bytes(b"1234567")
    with pytest.raises(DataError, match=r"short\.txt.* has 8 tokens, fewer than one sample of 8 \+ 1"):
        made(tmp_path, tmp_path / "short.txt")
    (tmp_path / "short.txt").write_bytes(b"12345678")
    assert made(tmp_path, tmp_path / "short.txt")["tokens"] == 9


def test_a_listing_tells_files_apart_without_reading_them_whole(tmp_path: Path, library: Path) -> None:
    args = {"train": [str(library)], "validation": [], "tokenizer": "byte"}
    before = list_sources(args, [])["files"]
    assert sorted(before) == [f"file://{library}/b.py", f"file://{library}/sub/a.txt"]
    os.utime(library / "b.py", (1, 1))
    assert list_sources(args, [])["files"] == before
    (library / "b.py").write_bytes(b"import 0s\n" * 4)
    after = list_sources(args, [])["files"]
    assert [uri for uri in before if before[uri] != after[uri]] == [f"file://{library}/b.py"]
