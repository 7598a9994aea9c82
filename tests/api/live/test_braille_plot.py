import math

from regroup.api.live.braille_plot import plot


def test_a_falling_line_starts_at_the_top_left_and_ends_at_the_bottom_right() -> None:
    lines = plot([(0, 4.0), (100, 1.0)], width=30, height=5)
    assert len(lines) == 5
    assert lines[0].startswith("     4 ⠉") and lines[4].lstrip().startswith("1 ")
    columns = [min(i for i, c in enumerate(line) if "⠀" < c <= "⣿") for line in lines]
    assert columns == sorted(columns) and columns[-1] > columns[0]
    assert all(len(line) <= 30 for line in lines)


def test_half_of_the_steps_fill_half_of_the_width() -> None:
    lines = plot([(0, 1.0), (50, 2.0)], width=107, height=4, x_max=100)
    assert 55 <= max(len(line) for line in lines) <= 58


def test_a_mark_is_in_its_column_and_hides_no_point() -> None:
    to_json, marked = (plot([(0, 2.0), (100, 1.0)], width=47, height=4, marks=m) for m in ([], [50.0]))
    assert sum(line.count("┊") for line in marked) >= 3
    assert [line.replace("┊", " ").rstrip() for line in marked] == to_json


def test_only_the_axis_is_drawn_without_finite_values() -> None:
    for points in ([], [(1.0, math.nan)]):
        lines = plot(points, width=20, height=3)
        assert lines[:2] == ["", ""] and lines[2].strip() == "·" * 13


def test_a_flat_line_has_a_scale() -> None:
    lines = plot([(0, 1.0), (9, 1.0)], width=30, height=3)
    assert lines[0].strip() == "1.5" and lines[2].strip() == "0.5" and len(lines[1]) == 30
