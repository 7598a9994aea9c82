import pytest

from regroup.api.live.output import RANK_0, TEED_RANKS, LineBuffer, OutputSource, tee_sources


def test_pieces_become_lines_and_a_carriage_return_replaces_its_line() -> None:
    buffer = LineBuffer()
    assert buffer.add("one\ntw") == ["one"]
    assert buffer.open_line == "tw"
    assert buffer.add("o\n\n 10%\r 20%") == ["two", ""]
    assert buffer.open_line == " 20%"
    assert buffer.add("\r100%\r\nend") == ["100%"]
    assert buffer.end() == ["end"] and buffer.end() == []


def test_a_progress_bar_without_line_ends_takes_bounded_memory() -> None:
    buffer = LineBuffer()
    for number in range(10_000):
        assert buffer.add(f"\r{number:5d} of 10000") == []
    assert buffer.open_line == " 9999 of 10000" and len(buffer._rest) < 100


def test_tee_selects_ranks_and_streams_as_torchrun_does() -> None:
    assert [(each.rank, each.stream, each.prefix) for each in tee_sources("3", 2)] == [
        (rank, stream, f"[rank{rank}] ") for rank in (0, 1) for stream in ("stdout", "stderr")
    ]
    assert tee_sources("1", 2, only={1}) == (OutputSource(1, "stdout", "[rank1] "),)
    assert tee_sources("0:1,1:2", 4) == (
        OutputSource(0, "stdout", "[rank0] "),
        OutputSource(1, "stderr", "[rank1] "),
    )
    assert tee_sources("0", 2) == () and tee_sources("7:3", 2) == ()
    assert len({source.rank for source in tee_sources("3", 10_000)}) == TEED_RANKS
    assert not any(source.prefix for source in RANK_0)


@pytest.mark.parametrize("tee", ["4", "", "a:1", "0:9", "0:1,,1:1"])
def test_another_form_of_tee_is_refused(tee: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        tee_sources(tee, 2)
