"""Division of reads into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.agent.transfer.chunk_client import Read, chunks_of
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES, MOST_CHUNK_BYTES, MOST_REGIONS
from regroup.workers.state.slices.boxes import Region

MEMORY = memoryview(bytearray(1))


@given(st.lists(st.one_of(st.integers(0, 2000), st.integers(0, 5 * CHUNK_BYTES)), max_size=600))
def test_chunks_cover_every_read_once_and_in_order(sizes: list[int]) -> None:
    reads, at = list[Read](), 0
    for size in sizes:
        reads.append(Read(Region(at, size), MEMORY, Region(2 * at, size)))
        at += size
    chunks = list(chunks_of(reads))
    parts = [read for chunk in chunks for read in chunk.reads]
    place = 0
    for part in parts:
        assert part.source.offset == place and part.source.size_bytes == part.target.size_bytes > 0
        place += part.source.size_bytes
    assert place == at
    assert all(chunk.nbytes <= CHUNK_BYTES and len(chunk.reads) <= MOST_REGIONS for chunk in chunks)
    assert len(chunks) <= 2 * at / CHUNK_BYTES + len(sizes) / MOST_REGIONS + 1


def test_a_strided_region_is_one_chunk_up_to_a_limit() -> None:
    wide = Region(0, 1 << 20, (9,), (1 << 21,))
    (chunk,) = chunks_of([Read(wide, MEMORY, Region(0, wide.size_bytes))])
    assert chunk.nbytes == 9 << 20
    too_wide = Region(0, 1 << 20, (65,), (1 << 21,))
    with pytest.raises(ValueError, match=f"exceeds a chunk of {MOST_CHUNK_BYTES} bytes"):
        list(chunks_of([Read(too_wide, MEMORY, Region(0, too_wide.size_bytes))]))


def test_regions_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot read 8 bytes to a region of 9 bytes"):
        list(chunks_of([Read(Region(0, 8), MEMORY, Region(0, 9))]))
