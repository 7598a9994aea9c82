"""The blob store in a bucket: the server stores an archive, and a node fetches it."""

import hashlib
import uuid
from pathlib import Path

import pytest

from regroup.service.blobs.store import ArchiveKey, BlobStore, DamagedUploadError, OffsetError
from regroup.workers.environment.code_archive import CodeError, fetch
from tests.support.inputs.archives import tar_of
from tests.support.servers.s3 import ObjectStorage

DATA = tar_of({"weights.bin": bytes(range(256)) * 30_000})
DAY_S = 86400.0
now_s = [1_000_000.0]


@pytest.fixture
def blobs(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    """Return a store in its own folder of the bucket, with credentials for the server and the agent."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"{s3.uri}/{uuid.uuid4().hex}"
    quota_bytes = 4 * len(DATA)
    return BlobStore(
        uri, limit_bytes=len(DATA), quota_bytes=quota_bytes, retention_s=30 * DAY_S, clock=lambda: now_s[0]
    )


async def test_a_node_fetches_an_archive_from_a_bucket(blobs: BlobStore, tmp_path: Path) -> None:
    key = ArchiveKey(hashlib.sha256(DATA).hexdigest(), len(DATA))
    archive, half = key.archive, len(DATA) // 2
    assert not await blobs.touch(archive)
    with pytest.raises(CodeError, match=r"does not find the job's code at s3://.*it was removed"):
        fetch(archive, blobs.uri, tmp_path)
    assert (await blobs.start_upload(key)).offset_bytes == 0
    assert (await blobs.append(key, 0, DATA[:half])).offset_bytes == half
    with pytest.raises(OffsetError):
        await blobs.append(key, 0, DATA[:half])
    with pytest.raises(DamagedUploadError):
        await blobs.append(key, half, bytes(half))
    assert (await blobs.start_upload(key)).offset_bytes == 0
    await blobs.append(key, 0, DATA[:half])
    assert (await blobs.append(key, half, DATA[half:])).complete
    assert fetch(archive, blobs.uri, tmp_path).read_bytes() == DATA

    now_s[0] += 29 * DAY_S
    assert await blobs.touch(archive)
    now_s[0] += 29 * DAY_S
    assert await blobs.collect_garbage([]) == []
    now_s[0] += 2 * DAY_S
    assert await blobs.collect_garbage([]) == [archive]
    assert not await blobs.touch(archive)
