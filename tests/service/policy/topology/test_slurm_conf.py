"""Lines of Slurm's conf files: comments, continuation and escapes."""

import pytest

from regroup.service.policy.topology.slurm_conf import logical_lines, read_statements


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a=1\nb=2", [(1, "a=1"), (2, "b=2")]),
        ("a=1 # comment", [(1, "a=1 ")]),
        (r"a=x\#1 # comment", [(1, "a=x#1 ")]),
        (r"a=x\\#1", [(1, "a=x\\")]),
        (r"a=x\\\#1", [(1, r"a=x\#1")]),
        ('a="x # y"', [(1, 'a="x ')]),
        ("a=1,\\\n2,\\\n3\nb=4", [(1, "a=1,2,3"), (4, "b=4")]),
        ("a=1,\\  \t\r\n2", [(1, "a=1,2")]),
        ("a=1 # no continuation \\\nb=2", [(1, "a=1 "), (2, "b=2")]),
        ("a=1 \\ # continuation\nb=2", [(1, "a=1 b=2")]),
        ("a=1\\\\\nb=2", [(1, "a=1\\"), (2, "b=2")]),
        ("a=1\\\\\\\nb=2", [(1, "a=1\\b=2")]),
        ("a=1\\", [(1, "a=1")]),
        ("a=\x0b1\x1c\u2028", [(1, "a=\x0b1\x1c\u2028")]),
    ],
)
def test_lines_end_as_in_slurm(text: str, lines: list[tuple[int, str]]) -> None:
    assert list(logical_lines(text)) == lines


def test_values_are_quoted_or_end_at_a_space() -> None:
    (statement,) = read_statements("f", 'A.b_1=x  B="two words" C="" D=a"b', lambda path: b"")
    assert statement.pairs == (("a.b_1", "x"), ("b", "two words"), ("c", ""), ("d", 'a"b'))
