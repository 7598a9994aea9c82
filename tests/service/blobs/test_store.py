"""The blob store over a real folder, with a clock that tests turn."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from regroup.service.blobs.store import Announced, Blobs, DamagedUploadError, OffsetError, TooLargeError
from regroup.service.domain.errors import UnavailableError
from tests.support.fake_clock import Clock

DAY_S = 86400.0
DATA = b"print('hello')\n" * 100


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def blobs(tmp_path: Path, clock: Clock) -> Blobs:
    return Blobs(f"file://{tmp_path}/blobs", limit_bytes=10_000, kept_s=30 * DAY_S, clock=clock)


def announced(data: bytes) -> Announced:
    return Announced(hashlib.sha256(data).hexdigest(), len(data))


async def stored(blobs: Blobs, data: bytes = DATA) -> str:
    assert (await blobs.append(announced(data), 0, data)).complete
    return announced(data).archive


async def test_an_archive_lies_under_its_address(blobs: Blobs, tmp_path: Path) -> None:
    archive = await stored(blobs)
    assert (tmp_path / "blobs" / "sha256" / archive.removeprefix("sha256:")).read_bytes() == DATA
    assert list((tmp_path / "blobs" / "uploads").iterdir()) == []
    assert await blobs.use(archive)
    assert not await blobs.use("sha256:" + "0" * 64)


async def test_an_upload_goes_on_at_another_server(blobs: Blobs, tmp_path: Path, clock: Clock) -> None:
    other = Blobs(blobs.uri, limit_bytes=10_000, kept_s=1.0, clock=clock)
    await blobs.append(announced(DATA), 0, DATA[:100])
    assert (await other.announce(announced(DATA))).offset_bytes == 100
    with pytest.raises(OffsetError) as refused:
        await other.append(announced(DATA), 0, DATA)
    assert refused.value.offset_bytes == 100
    assert (await other.append(announced(DATA), 100, DATA[100:])).complete


async def test_a_piece_that_was_cut_short_does_not_count(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.append(announced(DATA), 0, DATA[:100])
    await blobs.append(announced(DATA), 100, DATA[100:200])
    (part,) = (tmp_path / "blobs" / "uploads").rglob("100-100-*")
    part.write_bytes(part.read_bytes()[:50])
    assert (await blobs.announce(announced(DATA))).offset_bytes == 100
    assert (await blobs.append(announced(DATA), 100, DATA[100:])).complete


async def test_all_bytes_without_an_answer_are_completed_by_none(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.append(announced(DATA), 0, DATA[:100])
    (part,) = (tmp_path / "blobs" / "uploads").rglob("0-100-*")
    part.with_name(f"100-{len(DATA) - 100}-5").write_bytes(DATA[100:])  # written, then the server died
    assert not (state := await blobs.announce(announced(DATA))).complete
    assert (await blobs.append(announced(DATA), state.offset_bytes, b"")).complete


async def test_the_same_upload_from_many_sides_is_one(blobs: Blobs) -> None:
    async def bring(piece: int) -> None:
        state = await blobs.announce(announced(DATA))
        while not state.complete:
            data = DATA[state.offset_bytes : state.offset_bytes + piece]
            try:
                state = await blobs.append(announced(DATA), state.offset_bytes, data)
            except OffsetError:
                state = await blobs.announce(announced(DATA))

    await asyncio.wait_for(asyncio.gather(*(bring(piece) for piece in (7, 50, 64, 100, 500))), 60)
    assert await blobs.use(announced(DATA).archive)


async def test_what_is_not_as_announced_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError, match="this server takes 10000"):
        await blobs.announce(Announced("0" * 64, 10_001))
    with pytest.raises(DamagedUploadError, match="dropped"):
        await blobs.append(announced(DATA), 0, DATA[::-1])
    assert list((tmp_path / "blobs").rglob("*-*")) == []
    assert not await blobs.use(announced(DATA).archive)


async def test_an_archive_is_kept_as_long_as_it_is_used(blobs: Blobs, clock: Clock) -> None:
    unused, used, running = [await stored(blobs, DATA + bytes([number])) for number in range(3)]
    clock.now_s += 29 * DAY_S
    assert await blobs.sweep([]) == []
    assert await blobs.use(used)
    clock.now_s += 2 * DAY_S
    assert await blobs.sweep([running]) == [unused]
    assert not await blobs.use(unused)
    clock.now_s += 29 * DAY_S
    assert await blobs.sweep([]) == [used], "used 31 days ago; the other was in use 29 days ago"
    assert await blobs.use(running)
    clock.now_s += 29 * DAY_S
    assert (await blobs.announce(announced(DATA + bytes([2])))).complete, "bringing it again is a use, too"
    clock.now_s += 2 * DAY_S
    assert await blobs.sweep([]) == []


async def test_an_upload_that_brings_nothing_for_a_day_is_dropped(blobs: Blobs, clock: Clock, tmp_path: Path) -> None:
    await blobs.append(announced(DATA), 0, DATA[:100])
    clock.now_s += 0.9 * DAY_S
    await blobs.append(announced(DATA), 100, DATA[100:200])
    clock.now_s += 0.9 * DAY_S
    await blobs.sweep([])
    assert (await blobs.announce(announced(DATA))).offset_bytes == 200
    clock.now_s += 0.2 * DAY_S
    await blobs.sweep([])
    assert (await blobs.announce(announced(DATA))).offset_bytes == 0
    assert list((tmp_path / "blobs" / "uploads").iterdir()) == []


async def test_storage_that_cannot_be_reached_is_unavailable(clock: Clock) -> None:
    nowhere = Blobs("no-such-scheme://bucket", limit_bytes=10_000, kept_s=1.0, clock=clock)
    with pytest.raises(UnavailableError, match="no-such-scheme"):
        await nowhere.announce(announced(DATA))
