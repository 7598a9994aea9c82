"""Rules for archives of code. An archive that breaks one is refused before anything is written."""

import gzip
import io
import lzma
import shutil
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given

from regroup.workers.contract.archive_rules import ArchiveLimits, ArchiveRefused, check_archive, open_archive
from tests.support.inputs.archives import (
    FILE,
    FOLDER,
    LINK,
    Member,
    bomb,
    tar_of,
    tar_of_members,
    tar_with_extended_header,
)
from tests.support.inputs.damaged_archives import damaged_archives
from tests.support.inputs.fuzz import fuzz_settings

LIMITS = ArchiveLimits()
SMALL = ArchiveLimits(unpacked_bytes=100_000, members=20, path_bytes=100, depth=5)


def refusal(data: bytes, limits: ArchiveLimits = LIMITS) -> str:
    """Return why an archive is refused; empty if it is not."""
    try:
        check_archive(io.BytesIO(data), limits)
    except ArchiveRefused as error:
        return str(error)
    return ""


def header(size: int, kind: bytes = FILE, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def test_a_plain_and_a_compressed_archive_are_accepted() -> None:
    plain = tar_of({"train.py": b"x = 1\n", "package/__init__.py": b""})
    for data in (plain, gzip.compress(plain), tar_of({})):
        assert refusal(data) == ""
    with open_archive(io.BytesIO(gzip.compress(plain)), LIMITS) as (tar, members):
        assert [member.name for member in members] == ["train.py", "package/__init__.py"]
        file = tar.extractfile(members[0])
        assert file is not None and file.read() == b"x = 1\n"


def test_a_bomb_is_refused_with_the_limit_before_it_is_unpacked() -> None:
    data = bomb(2**30)
    assert len(data) < 1.1 * 2**20
    tracemalloc.start()
    began = time.process_time()
    reason = refusal(data)
    assert "unpacks to more than the limit of 200.0 MiB" in reason and ".regroupignore" in reason
    assert time.process_time() - began < 5 and tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        header(2**30),
        header(2**62),
        b"".join(header(30_000, name=f"f{number}") + bytes(30_208) for number in range(4)) + bytes(1024),
    ],
)
def test_stated_sizes_count_before_the_data_is_read(data: bytes) -> None:
    assert "unpacks to more than the limit of 0.1 MiB" in refusal(data, SMALL)


def test_a_sparse_file_is_refused() -> None:
    sparse = bytearray(header(0, tarfile.GNUTYPE_SPARSE, "big"))
    sparse[386:410] = b"00000000000\0" + b"00000000000\0"
    sparse[483:495] = b"17777777777\0"
    sparse[148:156] = b" " * 8
    sparse[148:156] = f"{sum(sparse):06o}\0 ".encode()
    assert "'big' is not a file" in refusal(bytes(sparse) + bytes(1024))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("pax")
        member.pax_headers = {"GNU.sparse.size": "8589934592", "GNU.sparse.map": "0,0"}
        tar.addfile(member)
    assert "'pax' is not a file" in refusal(buffer.getvalue())


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 40, lzma.compress(tar_of({"x": b""})), b"BZh91AY&SY"])
def test_another_file_is_refused(data: bytes) -> None:
    assert refusal(data).startswith("it is not a tar archive")


def test_a_torn_or_damaged_archive_is_refused() -> None:
    whole = tar_of({"a": b"1" * 600, "b": b"2" * 600})
    for size in (100, 511, 600, 1300, 2100, 2600):
        assert refusal(whole[:size]), size
    damaged = bytearray(whole)
    damaged[1536 + 150] ^= 1
    assert "damaged at byte 1536" in refusal(bytes(damaged))
    assert "it is not a tar archive" in refusal(gzip.compress(whole)[:-12])


def test_extended_headers_are_limited() -> None:
    assert "header of" in refusal(header(2**27, tarfile.GNUTYPE_LONGNAME) + bytes(2**20))
    chain = b"".join(header(1, tarfile.GNUTYPE_LONGNAME) + b"x" + bytes(511) for _ in range(3000))
    assert "too many headers that extend each other" in refusal(chain + header(0))
    negative = b"14 size=-1000\n"
    assert refusal(header(len(negative), tarfile.XHDTYPE) + negative.ljust(512, b"\0") + header(0) + bytes(1024))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([(f"f{number}", FILE, "") for number in range(21)], "more than 20 files and folders"),
        ([(f"{number}/{number}/x", FILE, "") for number in range(7)], "more than 20 files and folders"),
        ([("a/b/c/d/e/f", FILE, "")], "path of 6 names; the limit is 5"),
        ([("x" * 90 + "/" + "y" * 20, FILE, "")], "path of 111 bytes; the limit is 100"),
        ([("link", LINK, "y/" * 6)], "the limit is 5"),
        ([("/tmp/x", FILE, "")], "is outside"),
        ([("a/../../x", FILE, "")], "is outside"),
        ([("..", FOLDER, "")], "is outside"),
        ([("out", LINK, "/etc")], "outside the archive"),
        ([("a/out", LINK, "../../etc")], "outside the archive"),
        ([("out", LINK, "")], "is a link without a target"),
        ([("out", LINK, "."), ("out/x", FILE, "")], "is below 'out'"),
        ([("x/y", FILE, ""), ("x", FILE, "")], "is below 'x'"),
        ([("x", LINK, "y"), ("./x", FILE, "")], "is listed twice"),
        ([(".", FILE, "")], "has no name"),
        ([("x", tarfile.LNKTYPE, "y")], "is not a file"),
        ([("x", tarfile.FIFOTYPE, "")], "is not a file"),
        ([("x", tarfile.CHRTYPE, "")], "is not a file"),
        ([("x", tarfile.BLKTYPE, "")], "is not a file"),
        ([("x", tarfile.CONTTYPE, ""), ("x", FILE, "")], "is listed twice"),
    ],
)
def test_a_member_that_breaks_a_rule_is_named(members: list[Member], reason: str) -> None:
    assert reason in refusal(tar_of_members(members), SMALL)


def test_a_name_that_no_file_system_takes_is_refused() -> None:
    assert "name of more than 255 bytes" in refusal(tar_of({"x" * 256: b""}))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"path": "a\0b"}, "has a name with a NUL character"),
        ({"mtime": "1e300"}, "has an impossible modification time"),
        ({"mtime": "-1"}, "has an impossible modification time"),
        ({"mtime": "nan"}, "has an impossible modification time"),
    ],
)
def test_a_header_that_no_file_system_takes_is_refused(fields: dict[str, str], reason: str) -> None:
    assert reason in refusal(tar_with_extended_header(**fields))


def test_many_members_are_checked_in_time() -> None:
    names = [f"{number // 100}/{number}" for number in range(19_000)]
    began = time.process_time()
    assert refusal(tar_of_members((name, FILE, "") for name in names)) == ""
    assert time.process_time() - began < 20


@pytest.mark.fuzz
@fuzz_settings(60)
@given(data=damaged_archives())
@example(data=b"\x1f\x8b")
@example(data=b"\x1f\x8b\x08" + bytes(40))
@example(data=header(13, tarfile.XHDTYPE) + b"13 size=1e9\n".ljust(512, b"\0") + header(0) + bytes(1024))
@example(data=header(24, tarfile.XHDTYPE) + b"24 GNU.sparse.map=0,1,2\n".ljust(512, b"\0") + header(0) + bytes(1024))
@example(data=header(20, tarfile.XHDTYPE) + b"20 hdrcharset=BINARY\n".ljust(512, b"\0") + header(0) + bytes(1024))
def test_any_bytes_are_refused_or_unpack_inside_the_folder(tmp_path: Path, data: bytes) -> None:
    began = time.process_time()
    target = tmp_path / "jobs" / "job"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        with open_archive(io.BytesIO(data), SMALL) as (tar, members):
            tar.extractall(target, members, filter="data")
    except ArchiveRefused:
        assert not any(target.iterdir()), "nothing is written before all members are checked"
    except (tarfile.TarError, OSError, ValueError):
        pass  # a name that the file system does not take
    assert time.process_time() - began < 5
    found = list(target.rglob("*"))
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["job"]
    assert len(found) <= SMALL.members
    assert sum(path.lstat().st_size for path in found if path.is_file() and not path.is_symlink()) <= 100_000
