"""The CRC-32 of a file is that of its chunks, combined."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.storage.crc32 import combine


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_the_combined_checksum_is_that_of_the_whole(chunks: list[bytes]) -> None:
    assert combine([zlib.crc32(chunk) for chunk in chunks], [len(chunk) for chunk in chunks]) == zlib.crc32(
        b"".join(chunks)
    )


def test_large_chunks_are_combined_too() -> None:
    chunks = [bytes([number]) * (8 << 20) for number in range(3)]
    assert combine([zlib.crc32(chunk) for chunk in chunks], [8 << 20] * 3) == zlib.crc32(b"".join(chunks))
