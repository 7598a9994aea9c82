"""The blob store in a bucket: what a server brings together, a node fetches."""

import hashlib
import uuid
from pathlib import Path

import pytest

from regroup.service.blobs.store import Announced, Blobs, DamagedUploadError, OffsetError
from regroup.workers.environment.code_archive import CodeError, fetched
from tests.support.s3 import ObjectStorage

DATA = bytes(range(256)) * 30_000
DAY_S = 86400.0
now_s = [1_000_000.0]


@pytest.fixture
def blobs(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """A place of its own in the bucket, with credentials where a server and an agent have them."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"{s3.uri}/{uuid.uuid4().hex}"
    return Blobs(uri, limit_bytes=len(DATA), kept_s=30 * DAY_S, clock=lambda: now_s[0])


async def test_an_archive_goes_through_a_bucket(blobs: Blobs, tmp_path: Path) -> None:
    announced = Announced(hashlib.sha256(DATA).hexdigest(), len(DATA))
    archive, half = announced.archive, len(DATA) // 2
    assert not await blobs.use(archive)
    with pytest.raises(CodeError, match=r"does not see the job's code at s3://.*it was removed"):
        fetched(archive, blobs.uri, tmp_path)
    assert (await blobs.announce(announced)).offset_bytes == 0
    assert (await blobs.append(announced, 0, DATA[:half])).offset_bytes == half
    with pytest.raises(OffsetError):
        await blobs.append(announced, 0, DATA[:half])
    with pytest.raises(DamagedUploadError):
        await blobs.append(announced, half, bytes(half))
    assert (await blobs.announce(announced)).offset_bytes == 0
    await blobs.append(announced, 0, DATA[:half])
    assert (await blobs.append(announced, half, DATA[half:])).complete
    assert fetched(archive, blobs.uri, tmp_path).read_bytes() == DATA

    now_s[0] += 29 * DAY_S
    assert await blobs.use(archive)
    now_s[0] += 29 * DAY_S
    assert await blobs.sweep([]) == []
    now_s[0] += 2 * DAY_S
    assert await blobs.sweep([]) == [archive]
    assert not await blobs.use(archive)
