"""A snapshot buffer: complete or unusable, whatever instruction its writer died at."""

import os
import resource
import signal
from collections.abc import Iterator

import pytest

from regroup.workers.state.buffer_layout import HEADER_BYTES, BufferLayout, Entry
from regroup.workers.state.shard_buffer import BufferState, Pin, ShardBuffer, ShardError

ENTRIES = (
    Entry("a.weight", "uint8", (4, 6), (2, 0), (2, 6), 12),
    Entry("b", "uint8", (100,), (0,), (100,), 100),
    Entry("empty", "uint8", (3, 5), (3, 0), (0, 5), 0),
)
PLAN = BufferLayout(ENTRIES)


@pytest.fixture
def fd() -> Iterator[int]:
    number = os.memfd_create("test")
    yield number
    os.close(number)


def write(buffer: ShardBuffer, step: int, fill: int, pin: Pin = Pin.NONE) -> None:
    buffer.begin(
        PLAN, {"cursor": step * 8}, generation=3, step=step, rank=1, world_size=2, layout_hash="0123456789abcdef"
    )
    for entry in PLAN.entries:
        buffer.view(entry)[:] = bytes([fill]) * entry.nbytes
    buffer.commit(pin)


def test_another_reader_finds_what_was_written(fd: int) -> None:
    write(ShardBuffer(os.dup(fd)), step=5, fill=7)
    reader = ShardBuffer(os.dup(fd))
    header = reader.header()
    assert (header.state, header.generation, header.step) == (BufferState.COMPLETE, 3, 5)
    assert (header.rank, header.world_size, header.layout_hash) == (1, 2, "0123456789abcdef")
    assert not header.pinned
    assert reader.verify()
    index = reader.index()
    assert [(e.name, e.offset, e.shape, e.global_shape) for e in index.tensors] == [
        (e.name, e.offset, e.shape, e.global_shape) for e in ENTRIES
    ]
    assert index.extra == {"cursor": 40}
    assert [bytes(reader.view(entry)) for entry in index.tensors] == [b"\7" * 12, b"\7" * 100, b""]
    assert all(entry.start % 64 == 0 for entry in index.tensors)


def test_an_untouched_buffer_is_empty(fd: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    assert buffer.header().state is BufferState.EMPTY
    assert not buffer.verify()
    with pytest.raises(ShardError, match="empty"):
        buffer.index()


def test_a_presized_but_untouched_buffer_is_empty_and_gets_its_memory_at_first_use(fd: int) -> None:
    os.ftruncate(fd, 1 << 20)
    assert ShardBuffer(os.dup(fd)).header().state is BufferState.EMPTY
    write(ShardBuffer(os.dup(fd)), 1, 1)
    assert os.fstat(fd).st_blocks * 512 >= HEADER_BYTES + 112


def test_a_writer_killed_in_the_middle_leaves_no_usable_set(fd: int) -> None:
    write(ShardBuffer(os.dup(fd)), step=5, fill=7)
    child = os.fork()
    if child == 0:
        buffer = ShardBuffer(fd)
        buffer.begin(PLAN, {}, generation=3, step=6, rank=1, world_size=2, layout_hash="x")
        buffer.view(PLAN.entries[0])[:] = b"\1" * 12
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    reader = ShardBuffer(os.dup(fd))
    assert reader.header().state is BufferState.WRITING
    assert not reader.verify()


@pytest.mark.parametrize("place", [0, 9, 20, HEADER_BYTES + 3, HEADER_BYTES + 500])
def test_a_flipped_bit_anywhere_fails_verification(fd: int, place: int) -> None:
    write(ShardBuffer(os.dup(fd)), 5, 7)
    byte = os.pread(fd, 1, place)[0]
    os.pwrite(fd, bytes([byte ^ 1]), place)
    assert not ShardBuffer(os.dup(fd)).verify()


def test_every_single_bit_of_fields_index_and_data_is_covered(fd: int) -> None:
    write(ShardBuffer(os.dup(fd)), 5, 7)
    reader = ShardBuffer(os.dup(fd))
    header = reader.header()
    end = HEADER_BYTES + header.index_bytes + 63 & ~63
    places = [*range(76), *range(HEADER_BYTES, HEADER_BYTES + 600), *range(end, end + header.data_bytes)]
    for place in places:
        byte = os.pread(fd, 1, place)
        os.pwrite(fd, bytes([byte[0] ^ 0x10]), place)
        assert not reader.verify(), place
        os.pwrite(fd, byte, place)
    assert reader.verify()


def test_a_header_that_claims_more_than_the_file_holds_is_unusable(fd: int) -> None:
    write(ShardBuffer(os.dup(fd)), 5, 7)
    os.ftruncate(fd, HEADER_BYTES + 10)
    reader = ShardBuffer(os.dup(fd))
    assert not reader.verify()
    with pytest.raises(ShardError):
        reader.index()


def test_a_pinned_set_refuses_to_be_overwritten_until_released(fd: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    write(buffer, 5, 7, Pin.CHECKPOINT | Pin.MIRROR)
    assert buffer.header().pinned
    with pytest.raises(ShardError, match="pinned"):
        write(buffer, 6, 8)
    assert buffer.verify()
    ShardBuffer(os.dup(fd)).release(Pin.CHECKPOINT)
    assert buffer.header().pinned is Pin.MIRROR
    with pytest.raises(ShardError, match="MIRROR"):
        write(buffer, 6, 8)
    ShardBuffer(os.dup(fd)).release(Pin.MIRROR)
    write(buffer, 6, 8)
    assert buffer.header().step == 6
    assert buffer.verify()


def test_commit_without_begin_is_refused(fd: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    write(buffer, 5, 7)
    with pytest.raises(ShardError, match="begin"):
        buffer.commit()


def test_a_buffer_grows_when_its_index_does(fd: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    write(buffer, 5, 7)
    size = os.fstat(fd).st_size
    buffer.begin(PLAN, {"more": "x" * 100_000}, generation=3, step=6, rank=1, world_size=2, layout_hash="x")
    buffer.commit()
    assert os.fstat(fd).st_size > size
    assert buffer.verify()
    assert len(buffer.index().extra["more"]) == 100_000


def test_the_size_asked_for_is_enough(fd: int) -> None:
    write(ShardBuffer(os.dup(fd)), 5, 7)
    assert os.fstat(fd).st_size <= PLAN.buffer_bytes


def test_missing_memory_is_an_error_and_not_a_signal() -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
            big = Entry("big", "uint8", (1 << 20,), (0,), (1 << 20,), 1 << 20)
            buffer = ShardBuffer(os.memfd_create("small"))
            buffer.begin(BufferLayout([big]), {}, generation=1, step=1, rank=0, world_size=1, layout_hash="x")
        except ShardError as error:
            code = 0 if "no host memory" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_held_view_outlives_the_buffer(fd: int) -> None:
    buffer = ShardBuffer(os.dup(fd))
    write(buffer, 5, 7)
    view = buffer.view(buffer.index().tensors[0])
    buffer.close()
    assert bytes(view) == b"\7" * 12
