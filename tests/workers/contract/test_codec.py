"""Records become plain data and the same records again, whatever made them."""

import json
from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from regroup.workers.contract.codec import build, plain


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    size: int
    color: Color = Color.RED


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    best: Part | None = None
    facts: dict[int, Part] = field(default_factory=dict[int, Part])


@dataclass(frozen=True)
class Checked:
    low: int
    high: int = 5

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low={self.low} exceeds high={self.high}")


@dataclass(frozen=True, slots=True)
class Slotted:
    low: int
    high: int = 5


WHOLE = Whole("w", (Part(1), Part(2)), Part(3), {4: Part(5)})


def test_records_in_records_are_the_same_after_json() -> None:
    found = build(Whole, json.loads(json.dumps(plain(WHOLE))))
    assert found == WHOLE and hash(found.parts) == hash(WHOLE.parts)
    assert found.best is not None and found.best.color is Color.RED


def test_fields_have_the_order_of_the_class_and_not_that_of_the_data() -> None:
    assert list(vars(build(Part, {"color": "red", "size": 1}))) == ["size", "color"]


def test_defaults_are_made_for_each_record() -> None:
    one, two = (build(Whole, {"name": "w", "parts": []}) for _ in range(2))
    assert (one.best, one.facts) == (None, {}) and one.facts is not two.facts


def test_unknown_fields_are_ignored_and_missing_ones_are_an_error() -> None:
    assert build(Part, {"size": 1, "of_a_newer_version": 2}) == Part(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        build(Part, {"color": "red"})


def test_a_class_that_checks_its_fields_does_so() -> None:
    assert build(Checked, {"low": 1}) == Checked(1)
    with pytest.raises(ValueError, match="low=7 exceeds high=5"):
        build(Checked, {"low": 7})


def test_a_class_with_slots_is_built() -> None:
    assert build(Slotted, {"low": 1}) == Slotted(1)


def test_a_built_record_is_frozen() -> None:
    with pytest.raises(AttributeError):
        build(Part, {"size": 1}).size = 2  # pyright: ignore[reportAttributeAccessIssue]
