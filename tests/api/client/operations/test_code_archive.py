"""Archives of folders: the same content gives the same bytes, and errors name invalid entries."""

import hashlib
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from regroup.api.client.operations.code_archive import ArchiveError, pack
from regroup.service.local.data_marker import MARKER, mark_data_folders

Pack = Callable[..., list[str]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project."""
    root = tmp_path / "project"
    for name in (
        "train.py",
        "model/net.py",
        "model/__pycache__/net.cpython-311.pyc",
        ".git/config",
        ".venv/bin/python",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "data").symlink_to("model")
    return root


@pytest.fixture
def names(tmp_path: Path) -> Pack:
    """A function that packs a folder and returns the names in the archive."""

    def packed(folder: Path, limit_bytes: int | None = None) -> list[str]:
        with tarfile.open(pack(folder, tmp_path / "code.tar", limit_bytes).file) as tar:
            return tar.getnames()

    return packed


def test_generated_files_and_caches_are_not_packed(tree: Path, names: Pack) -> None:
    assert names(tree) == ["data", "model", "model/net.py", "run.sh", "train.py"]


def test_the_same_content_gives_the_same_archive(tree: Path, tmp_path: Path) -> None:
    first = pack(tree, tmp_path / "first.tar")
    assert first.address == f"sha256:{hashlib.sha256((tmp_path / 'first.tar').read_bytes()).hexdigest()}"
    assert first.size_bytes == (tmp_path / "first.tar").stat().st_size
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("train.py", "run.sh", "model/net.py"):  # with another order, time and umask
        (copy / name).parent.mkdir(exist_ok=True, mode=0o700)
        (copy / name).write_bytes((tree / name).read_bytes())
        os.utime(copy / name, (1, 1))
    (copy / "train.py").chmod(0o600)
    (copy / "run.sh").chmod(0o700)
    (copy / "data").symlink_to("model")
    assert pack(copy, tmp_path / "second.tar").address == first.address
    (copy / "train.py").write_text("train!py")
    assert pack(copy, tmp_path / "third.tar").address != first.address
    (copy / "train.py").write_text("train.py")
    (copy / "train.py").chmod(0o700)
    assert pack(copy, tmp_path / "fourth.tar").address != first.address, "the executable bit is a part of the content"


def test_the_ignore_file_has_the_syntax_of_gitignore(tree: Path, names: Pack) -> None:
    for name in ("notes.txt", "keep.txt", "model/weights.bin", "runs/1/log", "deep/runs/log"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / ".regroupignore").write_text("# mine\n*.txt\n!keep.txt\n/runs/\nmodel/*.bin\n!.venv/\n")
    assert names(tree) == [
        ".regroupignore", ".venv", ".venv/bin", ".venv/bin/python", "data", "deep", "deep/runs", "deep/runs/log",
        "keep.txt", "model", "model/net.py", "run.sh", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "model/../../secret", "model/back/../../secret"])
def test_a_link_out_of_the_folder_is_rejected(tree: Path, names: Pack, target: str) -> None:
    (tree / "model" / "back").symlink_to("..")
    (tree / "out").symlink_to(target)
    with pytest.raises(ArchiveError, match=r"out is a symbolic link to .*\.regroupignore"):
        names(tree)
    (tree / ".regroupignore").write_text("/out\n")
    assert "out" not in names(tree)


def test_a_broken_or_circular_link_is_packed_as_a_link(tree: Path, names: Pack) -> None:
    (tree / "gone").symlink_to("not/here")
    (tree / "loop").symlink_to("loop")
    assert {"gone", "loop"} <= set(names(tree))


def test_an_error_above_the_limit_names_the_largest_files(tree: Path, names: Pack, tmp_path: Path) -> None:
    (tree / "weights.bin").write_bytes(bytes(3 * 2**20))
    (tree / "images").mkdir()
    for number in range(20):
        (tree / "images" / f"{number}.png").write_bytes(bytes(2**18))
    with pytest.raises(
        ArchiveError, match=r"8\.\d MiB.* accepts 1\.0 MiB\. Largest: images/ \(5\.0 MiB\), weights\.bin \(3\.0 MiB\)"
    ):
        names(tree, 2**20)
    assert not (tmp_path / "code.tar").exists()
    with pytest.raises(ArchiveError, match="Largest"):
        names(tree, pack(tree, tmp_path / "whole.tar").size_bytes - 1)


def test_a_folder_without_code_is_rejected(tree: Path, names: Pack, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"nowhere is not a folder"):
        names(tmp_path / "nowhere")
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    with pytest.raises(ArchiveError, match=r"empty contains no file"):
        names(tmp_path / "empty")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tree / "s"))
        with pytest.raises(ArchiveError, match=r"/s is not a file, folder or symbolic link"):
            names(tree)


def test_data_of_a_server_is_left_out_and_named(tree: Path, tmp_path: Path) -> None:
    state, storage, blobs = tree / ".regroup", tree / "deep" / "storage", tree / "blobs"
    mark_data_folders(state, storage.as_uri(), str(blobs))
    for folder in (state / "storage" / "jobs", storage, blobs):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "large").write_bytes(bytes(100_000))
    (tree / "own").mkdir()
    (tree / "own" / "checkpoint").write_bytes(bytes(100_000))
    packed = pack(tree, tmp_path / "code.tar", data_folders=[tree / "own"])
    assert packed.left_out == (".regroup", "blobs", "deep/storage", "own") and packed.size_bytes < 20_000
    with tarfile.open(packed.file) as tar:
        assert tar.getnames() == ["data", "deep", "model", "model/net.py", "run.sh", "train.py"]
    assert pack(tree, tmp_path / "again.tar", data_folders=[tree / "own"]).address == packed.address


def test_a_folder_of_the_server_itself_is_rejected(tree: Path, names: Pack) -> None:
    (tree / MARKER).touch()
    with pytest.raises(ArchiveError, match="is a folder of regroup's own data"):
        names(tree)


def test_storage_elsewhere_is_not_marked(tmp_path: Path) -> None:
    mark_data_folders(tmp_path / "state", "s3://bucket/x", "/proc/regroup")
    assert [path.name for path in tmp_path.rglob("*")] == ["state", MARKER]


def test_too_many_or_too_deep_entries_are_rejected_by_name(tree: Path, names: Pack) -> None:
    deep = tree / "a" / "/".join("a" * 70)
    deep.mkdir(parents=True)
    with pytest.raises(ArchiveError, match=r"is too deep: an archive has paths of at most 64 names .*\.regroupignore"):
        names(tree)
    (tree / ".regroupignore").write_text("/a/\n")
    (tree / "many").mkdir()
    for number in range(20_001):
        (tree / "many" / str(number)).touch()
    with pytest.raises(ArchiveError, match=r"more than 20000 files and folders.*; many/ alone has \d+\. List"):
        names(tree)
