"""Mutants of a small tree: their verdicts, and nothing of the run remains."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mutation.modules import ROOT
from tests.mutation.mutants import Mutant
from tests.mutation.report import Verdict
from tests.mutation.run import BaselineFailed, try_mutants
from tests.support.checks.leaks import no_process_remains

CODE = """
def count(limit):
    done = 0
    while done < limit:
        done = done + 1
    return done


def unused():
    return 1
"""
CHECK = """
from shapes import count

def test_count():
    assert count(3) == 3
"""
KILLED = Mutant("shapes.py", "while done < limit:", "core/ReplaceComparisonOperator_Lt_LtE")
ENDLESS = Mutant("shapes.py", "done = done + 1", "core/ReplaceBinaryOperator_Add_Sub")
SURVIVOR = Mutant("shapes.py", "return 1", "core/NumberReplacer")
GONE = Mutant("shapes.py", "return 2", "core/NumberReplacer")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one module and its test; temporary folders are in the same folder."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "shapes.py").write_text(CODE)
    (root / "test_shapes.py").write_text(CHECK)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow', 'soak']\n")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return root


def only_test(_: str) -> list[str]:
    return ["test_shapes.py"]


def test_each_mutant_gets_its_verdict_and_the_tree_stays_as_it_is(tree: Path, no_leaks: None) -> None:
    reported: list[Mutant] = []
    verdicts = try_mutants(
        [KILLED, ENDLESS, SURVIVOR, GONE],
        tree,
        1,
        lambda mutant, *_: reported.append(mutant),
        only_test,
        smallest_limit_s=2,
    )
    assert verdicts == {
        KILLED: Verdict.KILLED,
        ENDLESS: Verdict.TIMED_OUT,
        SURVIVOR: Verdict.SURVIVED,
        GONE: Verdict.LOST,
    }
    assert reported == [KILLED, ENDLESS, SURVIVOR]
    assert (tree / "shapes.py").read_text() == CODE
    assert sorted(path.name for path in tree.iterdir()) == ["pyproject.toml", "shapes.py", "test_shapes.py"]
    assert list((tree.parent / "temporary").iterdir()) == []


def test_tests_that_fail_without_a_mutant_are_an_error(tree: Path) -> None:
    (tree / "test_shapes.py").write_text(CHECK.replace("== 3", "== 4"))
    with pytest.raises(BaselineFailed, match="assert 3 == 4"):
        try_mutants([KILLED], tree, 1, lambda *_: None, only_test)


def test_after_ctrl_c_nothing_remains(tree: Path) -> None:
    program = f"""
from pathlib import Path
from tests.mutation.mutants import Mutant
from tests.mutation.run import try_mutants
lines = {[(each.line, each.operator) for each in (SURVIVOR, ENDLESS)]!r}
mutants = [Mutant("shapes.py", *each) for each in lines]
try_mutants(mutants, Path({str(tree)!r}), 1, lambda *_: print("one is done", flush=True), lambda _: ["test_shapes.py"])
"""
    temporary = tree.parent / "temporary"
    with no_process_remains():
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "one is done\n"
            process.send_signal(signal.SIGINT)  # the second mutant never ends
            began_s = time.monotonic()
            assert process.wait(30) != 0
            assert time.monotonic() - began_s < 20, "it did not wait for the limit"
    assert list(temporary.iterdir()) == []
