from regroup.api.live.output import LineBuffer


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
