"""Unbounded output of a rank: it is bounded on disk, and offsets stay valid."""

from pathlib import Path

import pytest

from regroup.service.operations.logs import read_archived
from regroup.service.ports.cluster import LogChunk
from regroup.workers.agent.ranks import logs
from regroup.workers.environment.redaction import Redactor

FIRST, LAST, LINE = logs.FIRST_BYTES, logs.LAST_BYTES, 100


def lines(path: Path, begin: int, end: int) -> None:
    with path.open("ab") as file:
        for number in range(begin // LINE, end // LINE):
            file.write(f"{number * LINE:0{LINE - 1}d}\n".encode())


def read_all(path: Path) -> list[tuple[int, bytes]]:
    """Return (offset, bytes) of every retained part of the output."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while (piece := logs.read(path, offset, 10**6, Redactor())).data:
        if found and piece.offset == offset:
            found[-1] = (found[-1][0], found[-1][1] + piece.data)
        else:
            found.append((piece.offset, piece.data))
        offset = piece.offset + len(piece.data)
    return found


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_the_first_and_the_last_part_of_growing_output_are_retained(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for end in range(25, 125, 25):
        lines(path, (end - 25) * 10**6, end * 10**6)
        logs.trim([path, tmp_path / "not-there"])
    assert path.stat().st_size == 100 * 10**6
    assert disk_bytes(path) <= FIRST + LAST + 2**20
    (start, head), (place, tail) = read_all(path)
    assert (start, len(head)) == (0, FIRST)
    assert place + len(tail) == 100 * 10**6 and LAST <= len(tail) < LAST + 2**17
    line = tail[LINE - place % LINE :][:LINE]  # offsets are those of the whole output
    assert int(line) == place + LINE - place % LINE


def test_short_output_is_not_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "out"
    lines(path, 0, 10**6)
    logs.trim([path])
    assert read_all(path) == [(0, path.read_bytes())]


async def test_the_archive_has_the_same_offsets_as_the_node(tmp_path: Path) -> None:
    path = tmp_path / "p-g1-rank0.out"
    lines(path, 0, 100 * 10**6)
    (tmp_path / "p-g1-rank0.err").touch()
    logs.archive(tmp_path, "p-", f"file://{tmp_path}/storage/logs", Redactor())
    storage = f"file://{tmp_path}/storage"
    assert (await read_archived(storage, 1, 0, "stderr", 0, 100)).complete
    head = await read_archived(storage, 1, 0, "stdout", FIRST - 10, 100)
    assert len(head.data) == 10 and not head.complete
    gap = await read_archived(storage, 1, 0, "stdout", head.next_offset, 200)
    assert gap.data.startswith("\n[31.3 ")
    assert gap.offset == (100 * 10**6 - LAST) // 65536 * 65536 and gap.next_offset == gap.offset + 200
    end = await read_archived(storage, 1, 0, "stdout", 100 * 10**6 - LINE, 10**6)
    assert end.data == f"{100 * 10**6 - LINE:0{LINE - 1}d}\n" and end.complete
    assert (await read_archived(storage, 1, 0, "stdout", 10**8, 10**6)).complete


@pytest.mark.parametrize("limit", [1, 5, 7, 64, 10**6])
def test_a_piece_of_output_has_no_part_of_a_secret(tmp_path: Path, limit: int) -> None:
    path, redactor = tmp_path / "out", Redactor(["hunter2-4f1d"])
    path.write_bytes(b"key hunter2-4f1d\nagain hunter2-4f1dhunter2-4f1d begun hunter")
    shown, offset = b"", 0
    while (piece := logs.read(path, offset, limit, redactor)).data:
        assert piece.offset == offset
        shown, offset = shown + piece.data, offset + len(piece.data)
    assert shown == b"key ************\nagain ************************ begun ******"


async def test_the_archive_has_no_secrets(tmp_path: Path) -> None:
    padding = "x" * (2**20 - 6)  # the copy is made in pieces of this size: a secret begins in one and ends in the next
    (tmp_path / "p-g1-rank0.out").write_text(f"{padding}hunter2-4f1d\n")
    logs.archive(tmp_path, "p-", f"file://{tmp_path}/storage/logs", Redactor(["hunter2-4f1d"]))
    (copy,) = (tmp_path / "storage" / "logs").iterdir()
    assert copy.read_text() == f"{padding}************\n"


def test_a_full_storage_is_reported_in_the_log_of_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p-g1-rank0.out").write_text("x" * 5000)
    logs.archive(tmp_path, "p-", "file:///dev/full", Redactor())
    assert "p-g1-rank0.out was not archived as file:///dev/full/g1-rank0.out: " in capsys.readouterr().err


def test_a_reader_sees_the_size_of_missing_output() -> None:
    chunk = LogChunk.of(b"on", 2 * 2**20, 2 * 2**20 + 2, is_ended=True, requested_offset=2**20)
    assert chunk.data == "\n[1.0 MiB of output are not kept]\non"
    assert (chunk.offset, chunk.next_offset, chunk.complete) == (2 * 2**20, 2 * 2**20 + 2, True)
