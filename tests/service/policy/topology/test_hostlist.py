"""Slurm's hostlist expressions."""

import time

import pytest

from regroup.service.policy.topology.hostlist import TopologyError, expand_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("n[001-004,7]", ["n001", "n002", "n003", "n004", "n7"]),
        ("a[08-10],b", ["a08", "a09", "a10", "b"]),
        ("c[1,3]-ib[0-1]", ["c1-ib0", "c1-ib1", "c3-ib0", "c3-ib1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        (" a , b\tc d,, [1-2]", ["a", "b", "c", "d", "1", "2"]),
        ("n[ 1 , 2 ]", ["n1", "n2"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_an_expression_is_expanded(text: str, names: list[str]) -> None:
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a[", "bracket"), ("a]", "bracket"), ("a[[1]]", "bracket"), ("a[1]]", "bracket"),
        ("a[]", "must be an integer or a range"), ("a[1-]", "must be"), ("a[-1]", "must be"), ("a[2-1]", "must be"),
        ("a[1-2-3]", "must be"), ("a[x]", "must be"), ("a[000x333]", "must be"), ("a[١]", "must be"),
        ("a[" + "9" * 5000 + "]", "must be"),
        ("a[0-200000]", "more than 200,000 names"),
        ("a[0-999][0-999]", "expands to more than 200,000 names"),
        ("a" + "[0-999]" * 8, "expands to more than 200,000 names"),
        ("a" + "[1]" * 5000, "more than 8 brackets"),
        ("a[0-150000],b[0-150000]", "expands to more than 200,000 names"),
        ("x" * 256, "a name has at most 255"),
        ('a"b', "is not a name"), ("a=b", "is not a name"), ("a;b", "is not a name"),
    ],
)  # fmt: skip
def test_an_invalid_expression_is_refused_at_once(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(TopologyError, match=message):
        expand_hostlist(text)
    assert time.process_time() - began < 2
