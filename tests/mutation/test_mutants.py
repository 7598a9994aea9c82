"""Mutants keep their identity when other lines change, and each is one change."""

import pytest

from tests.mutation.mutants import Mutant, mutants_of, source_with
from tests.mutation.operators import REMOVE_CALL

SOURCE = """
def total(values, limit):
    done = 0
    for value in values:
        if value < limit and not done:
            log(value)
        done = done + 1
    return done + 1 - 1
"""


def of(name: str, source: str = SOURCE) -> list[Mutant]:
    return [mutant for mutant in mutants_of("m.py", source) if mutant.operator.endswith(name)]


def test_each_mutant_changes_one_place_of_its_line() -> None:
    for mutant in mutants_of("m.py", SOURCE):
        changed = source_with(mutant, SOURCE)
        pairs = list(zip(SOURCE.splitlines(), changed.splitlines(), strict=True))
        (before,) = {one.strip() for one, other in pairs if one != other}
        assert before == mutant.line


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        ("Lt_LtE", "        if value <=limit and not done:"),
        ("AndWithOr", "        if value < limit or not done:"),
        ("Delete_Not", "        if value < limit and done:"),
        ("RemoveCall", "            pass"),
        ("Sub_Add", "    return done + 1 + 1"),
    ],
)
def test_operators_do_what_their_names_say(operator: str, line: str) -> None:
    (mutant,) = of(operator)
    lines = [each.replace(" ", "") for each in source_with(mutant, SOURCE).splitlines()]
    assert line.replace(" ", "") in lines


def test_notation_is_not_changed() -> None:
    source = """
@dataclass(frozen=True)
class Value:
    def add(self, *, other, **options):
        return [*other], {**options}, f(*other, **options), lambda *rest: rest, 1e9, 0x1000
"""
    assert mutants_of("m.py", source) == {}


def test_places_on_a_line_and_equal_lines_are_distinguished() -> None:
    twice = SOURCE + SOURCE.replace("total", "again")
    places = [
        (mutant.nth, mutant.place) for mutant in of("NumberReplacer", twice) if mutant.line == "return done + 1 - 1"
    ]
    assert sorted(places) == [(nth, place) for nth in (1, 2) for place in (1, 2, 3, 4)]
    second = Mutant("m.py", "return done + 1 - 1", "core/ReplaceBinaryOperator_Add_Sub", nth=2)
    changed = source_with(second, twice)
    assert changed.startswith(SOURCE)
    assert changed.replace("  return done - 1 - 1", "  return done + 1 - 1") == twice


def test_a_mutant_survives_edits_of_other_lines_and_not_of_its_own() -> None:
    call = Mutant("m.py", "log(value)", REMOVE_CALL)
    edited = "import x\n" + SOURCE.replace("done = done + 1", "done += 2")
    assert "log" not in source_with(call, edited)
    with pytest.raises(LookupError, match="no such line any more"):
        source_with(call, SOURCE.replace("log(value)", "log(limit)"))
