"""The sample is a function of the tree and the seed; each entry states its location."""

from collections import Counter
from pathlib import Path

from tests.mutation.modules import ROOT, modules, quick_tests_of
from tests.mutation.mutants import Mutant
from tests.mutation.sample import SIZES, draw, explanations, sample, write_sample

OPERATOR = "core/AddNot"
MANY = [
    Mutant(f"{folder}/{name}.py", f"line {number}", OPERATOR)
    for folder in ("workers/state", "service/policy")
    for name, count in (("one", 40), ("few", 3), ("two", 20))
    for number in range(count)
]
FEW = {"workers/state": 10, "service/policy": 6}


def test_modules_take_turns() -> None:
    drawn = Counter(mutant.module for mutant in draw(MANY, sizes=FEW))
    assert drawn["workers/state/few.py"] == 3
    assert sorted(drawn[f"workers/state/{name}.py"] for name in ("one", "two")) == [3, 4]
    assert {drawn[f"service/policy/{name}.py"] for name in ("one", "few", "two")} == {2}


def test_the_order_of_the_tree_does_not_matter_and_another_seed_draws_others() -> None:
    assert draw(reversed(MANY), sizes=FEW) == draw(MANY, sizes=FEW)
    assert draw(MANY, sizes=FEW, seed=1) != draw(MANY, sizes=FEW)


def test_a_lost_mutant_is_replaced_and_the_others_stay() -> None:
    before = draw(MANY, sizes=FEW)
    lost = before[3]
    after = draw([mutant for mutant in MANY if mutant != lost], before, FEW)
    assert len(after) == len(before)
    assert set(before) - set(after) == {lost}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    unusual = Mutant("workers/state/x.py", 'name = f"a\\n\\"{b}\\" – {1 + 1}"', OPERATOR, nth=2, place=3)
    write_sample([unusual, *MANY[:2]], tmp_path / "sample.toml")
    assert sample(tmp_path / "sample.toml") == [unusual, *MANY[:2]]


def test_the_stored_sample_is_of_the_stated_sizes_and_explains_only_its_own() -> None:
    stored = sample()
    assert len(set(stored)) == sum(SIZES.values())
    assert explanations().keys() <= set(stored)
    assert all(len(each.reason) > 20 for each in explanations().values())


def test_every_module_has_tests_that_exist() -> None:
    files = {test.partition("::")[0] for module in modules() for test in quick_tests_of(module)}
    assert {file for file in files if not (ROOT / file).is_file()} == set()
