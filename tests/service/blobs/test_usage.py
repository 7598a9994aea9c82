"""The measured size of the blob store."""

from pathlib import Path

from regroup.service.blobs.store import ArchiveKey, BlobStore
from regroup.service.blobs.usage import BlobUsage
from tests.support.doubles.fake_clock import Clock


async def test_the_size_is_measured_and_unknown_during_an_outage(tmp_path: Path) -> None:
    uri = str(tmp_path / "blobs")
    blobs = BlobStore(uri, limit_bytes=20_000, quota_bytes=10**6, retention_s=1.0, clock=Clock())
    usage = BlobUsage()
    assert usage.bytes is None
    await blobs.append(ArchiveKey("0" * 64, 700), 0, b"x")
    await usage.measure(blobs)
    assert usage.bytes == 700
    (tmp_path / "blobs").rename(tmp_path / "away")
    (tmp_path / "blobs").touch()
    await usage.measure(blobs)
    assert usage.bytes is None
