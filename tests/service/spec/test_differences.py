"""Differences between two documents."""

from regroup.service.spec.differences import find_differences


def test_differences_are_leaves_in_either_document() -> None:
    one, two = {"d": 1, "a": {"b": 1, "c": [1]}}, {"a": {"b": 2, "c": [1]}, "e": None, "f": {"g": 3}}
    assert [(each.path, each.first, each.second) for each in find_differences(one, two)] == [
        ("a.b", 1, 2), ("d", 1, None), ("f", None, {"g": 3}),
    ]  # fmt: skip


def test_a_list_is_one_value() -> None:
    (found,) = find_differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})
    assert (found.path, found.first, found.second) == ("a", [1, {"b": 2}], [1, {"b": 3}])
