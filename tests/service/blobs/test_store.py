"""The blob store in a real folder, with a fake clock."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from regroup.service.blobs import backend
from regroup.service.blobs.store import (
    ArchiveKey,
    BlobStore,
    DamagedUploadError,
    OffsetError,
    QuotaExceededError,
    RefusedArchiveError,
    TooLargeError,
)
from regroup.service.domain.errors import UnavailableError
from tests.support.doubles.fake_clock import Clock
from tests.support.inputs.archives import FILE, bomb, tar_of, tar_of_members

DAY_S = 86400.0
DATA = tar_of({"train.py": b"print('hello')\n" * 100})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def blobs(tmp_path: Path, clock: Clock) -> BlobStore:
    return BlobStore(
        f"file://{tmp_path}/blobs", limit_bytes=20_000, quota_bytes=10**6, retention_s=30 * DAY_S, clock=clock
    )


def archive_key(data: bytes) -> ArchiveKey:
    return ArchiveKey(hashlib.sha256(data).hexdigest(), len(data))


async def stored(blobs: BlobStore, data: bytes = DATA) -> str:
    assert (await blobs.append(archive_key(data), 0, data)).complete
    return archive_key(data).archive


async def test_an_archive_is_stored_under_its_address(blobs: BlobStore, tmp_path: Path) -> None:
    archive = await stored(blobs)
    assert (tmp_path / "blobs" / "sha256" / archive.removeprefix("sha256:")).read_bytes() == DATA
    assert list((tmp_path / "blobs" / "uploads").iterdir()) == []
    assert await blobs.touch(archive)
    assert not await blobs.touch("sha256:" + "0" * 64)


async def test_another_server_continues_an_upload(blobs: BlobStore, tmp_path: Path, clock: Clock) -> None:
    other = BlobStore(blobs.uri, limit_bytes=20_000, quota_bytes=10**6, retention_s=1.0, clock=clock)
    await blobs.append(archive_key(DATA), 0, DATA[:100])
    assert (await other.start_upload(archive_key(DATA))).offset_bytes == 100
    with pytest.raises(OffsetError) as refused:
        await other.append(archive_key(DATA), 0, DATA)
    assert refused.value.offset_bytes == 100
    assert (await other.append(archive_key(DATA), 100, DATA[100:])).complete


async def test_a_truncated_part_does_not_count(blobs: BlobStore, tmp_path: Path) -> None:
    await blobs.append(archive_key(DATA), 0, DATA[:100])
    await blobs.append(archive_key(DATA), 100, DATA[100:200])
    (part,) = (tmp_path / "blobs" / "uploads").rglob("100-100-*")
    part.write_bytes(part.read_bytes()[:50])
    assert (await blobs.start_upload(archive_key(DATA))).offset_bytes == 100
    assert (await blobs.append(archive_key(DATA), 100, DATA[100:])).complete


async def test_an_append_without_bytes_finishes_an_interrupted_upload(blobs: BlobStore, tmp_path: Path) -> None:
    await blobs.append(archive_key(DATA), 0, DATA[:100])
    (part,) = (tmp_path / "blobs" / "uploads").rglob("0-100-*")
    part.with_name(f"100-{len(DATA) - 100}-5").write_bytes(DATA[100:])  # The part is complete, but the server died.
    assert not (state := await blobs.start_upload(archive_key(DATA))).complete
    assert (await blobs.append(archive_key(DATA), state.offset_bytes, b"")).complete


async def test_clients_that_send_the_same_archive_share_one_upload(blobs: BlobStore) -> None:
    async def upload(piece: int) -> None:
        state = await blobs.start_upload(archive_key(DATA))
        while not state.complete:
            data = DATA[state.offset_bytes : state.offset_bytes + piece]
            try:
                state = await blobs.append(archive_key(DATA), state.offset_bytes, data)
            except OffsetError:
                state = await blobs.start_upload(archive_key(DATA))

    await asyncio.wait_for(asyncio.gather(*(upload(piece) for piece in (70, 500, 640, 1000, 5000))), 60)
    assert await blobs.touch(archive_key(DATA).archive)


async def test_bytes_that_do_not_match_the_key_are_refused(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError, match="20001 bytes, limit 20000"):
        await blobs.start_upload(ArchiveKey("0" * 64, 20_001))
    with pytest.raises(DamagedUploadError, match="discarded, restart"):
        await blobs.append(archive_key(DATA), 0, DATA[::-1])
    assert list((tmp_path / "blobs").rglob("*-*")) == []
    assert not await blobs.touch(archive_key(DATA).archive)


async def test_an_archive_is_retained_while_it_is_used(blobs: BlobStore, clock: Clock) -> None:
    unused, used, running = [await stored(blobs, DATA + bytes([number])) for number in range(3)]
    clock.now_s += 29 * DAY_S
    assert await blobs.collect_garbage([]) == []
    assert await blobs.touch(used)
    clock.now_s += 2 * DAY_S
    assert await blobs.collect_garbage([running]) == [unused]
    assert not await blobs.touch(unused)
    clock.now_s += 29 * DAY_S
    assert await blobs.collect_garbage([]) == [used], (
        "the last use was 31 days ago; the other archive was in use 29 days ago"
    )
    assert await blobs.touch(running)
    clock.now_s += 29 * DAY_S
    assert (await blobs.start_upload(archive_key(DATA + bytes([2])))).complete, "uploading it again counts as a use"
    clock.now_s += 2 * DAY_S
    assert await blobs.collect_garbage([]) == []


async def test_an_upload_without_new_bytes_for_a_day_is_removed(blobs: BlobStore, clock: Clock, tmp_path: Path) -> None:
    await blobs.append(archive_key(DATA), 0, DATA[:100])
    clock.now_s += 0.9 * DAY_S
    await blobs.append(archive_key(DATA), 100, DATA[100:200])
    clock.now_s += 0.9 * DAY_S
    await blobs.collect_garbage([])
    assert (await blobs.start_upload(archive_key(DATA))).offset_bytes == 200
    clock.now_s += 0.2 * DAY_S
    await blobs.collect_garbage([])
    assert (await blobs.start_upload(archive_key(DATA))).offset_bytes == 0
    assert list((tmp_path / "blobs" / "uploads").iterdir()) == []


async def test_archives_beyond_the_quota_are_refused_until_others_are_removed(tmp_path: Path, clock: Clock) -> None:
    size = len(DATA)
    uri, quota_bytes = f"file://{tmp_path}/blobs", 2 * size + size // 2
    blobs = BlobStore(uri, limit_bytes=20_000, quota_bytes=quota_bytes, retention_s=30 * DAY_S, clock=clock)
    second, third = (archive_key(tar_of({name: b"x" * 1500})) for name in "bc")
    await stored(blobs)
    assert await blobs.used_bytes() == size
    await blobs.append(second, 0, b"x")
    assert await blobs.used_bytes() == size + second.size_bytes, "an upload counts with its announced size"
    with pytest.raises(QuotaExceededError) as refused:
        await blobs.start_upload(third)
    used_bytes = size + second.size_bytes
    assert f"{used_bytes} bytes, limit {quota_bytes}; raise REGROUP_BLOB_QUOTA_BYTES" in str(refused.value)
    with pytest.raises(QuotaExceededError):
        await blobs.append(third, 0, b"x")
    assert (await blobs.append(second, 1, b"x")).offset_bytes == 2, "an upload that was accepted continues"
    assert (await blobs.start_upload(archive_key(DATA))).complete, "an archive that is stored needs no space"
    clock.now_s += 31 * DAY_S
    await blobs.collect_garbage([])
    assert await blobs.used_bytes() == 0
    assert (await blobs.append(third, 0, b"x")).offset_bytes == 1


async def test_storage_of_an_unsupported_scheme_is_unavailable(clock: Clock) -> None:
    nowhere = BlobStore("no-such-scheme://bucket", limit_bytes=20_000, quota_bytes=10**6, retention_s=1.0, clock=clock)
    with pytest.raises(UnavailableError, match="no-such-scheme"):
        await nowhere.start_upload(archive_key(DATA))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bomb(2**22), r"unpacks to more than the limit of 0\.0 MiB"),
        (tar_of_members([("../x", FILE, "")]), "is outside the archive"),
        (b"print('hello')\n", "it is not a tar archive"),
    ],
)
async def test_an_archive_that_breaks_a_rule_is_refused_and_deleted(
    blobs: BlobStore, tmp_path: Path, data: bytes, reason: str
) -> None:
    with pytest.raises(RefusedArchiveError, match=rf"archive sha256:[0-9a-f]{{64}} is refused: .*{reason}"):
        await blobs.append(archive_key(data), 0, data)
    assert not await blobs.touch(archive_key(data).archive)
    assert not list((tmp_path / "blobs" / "uploads").iterdir())


async def test_an_upload_in_very_many_pieces_is_refused(blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_MOST_PARTS", 3)
    for offset in range(3):
        await blobs.append(archive_key(DATA), offset, DATA[offset : offset + 1])
    with pytest.raises(DamagedUploadError, match=r"in more than 3 pieces .* with larger pieces"):
        await blobs.append(archive_key(DATA), 3, DATA[3:4])
    assert (await blobs.append(archive_key(DATA), 0, DATA)).complete
