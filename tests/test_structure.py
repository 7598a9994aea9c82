"""Rules of the tree: links, import contracts, file sizes, names, and the set-up."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packages.wheel import PACKAGES, ROOT, run

FORBIDDEN_NAMES = {
    "helper": "the thing it does",
    "helpers": "the thing it does",
    "util": "the thing it does",
    "utils": "the thing it does",
    "misc": "the thing it does",
    "manager": "the thing it does",
    "incarnation": "generation",
    "coordinator": "supervisor",
    "forkserver": "zygote",
}
"""Words that names of modules, classes and functions must not contain → replacement."""


def python_files() -> Iterator[Path]:
    for folder in (*PACKAGES, "tests", "benchmarks", "examples", "deploy", "docs"):
        yield from (ROOT / folder).rglob("*.py")


# ------------------------------------------------------------------------------------------------ the tree


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_a_link_to_a_top_level_folder(name: str) -> None:
    assert (ROOT / "regroup" / name).readlink() == Path("..") / name


def test_the_console_is_a_link_to_its_build() -> None:
    assert (ROOT / "regroup" / "console").readlink() == Path("../console/dist")


def test_imports_follow_the_import_contracts() -> None:
    run(Path(sys.executable).parent / "lint-imports", "--no-cache")


def test_the_dense_reference_shares_no_code_with_what_is_compared_with_it() -> None:
    allowed = {"torch", *sys.stdlib_module_names}
    found = {name for path in (ROOT / "tests/support/reference").rglob("*.py") for name in _imports(path)}
    foreign = {
        name
        for name in found
        if not name.startswith("tests.support.reference.") and name.partition(".")[0] not in allowed
    }
    assert foreign == set(), "the reference is written from formulas"
    assert {name for name in found if name.startswith(("torch.nn", "torch.optim"))} == set()
    assert found >= {"torch", "torch.Tensor"}, "files of the reference are read"


def test_no_file_has_400_lines_or_more() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: length for path, length in lengths.items() if length >= 400} == {}


def test_names_contain_no_empty_words_and_no_synonyms() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}: use {FORBIDDEN_NAMES[word]}"
        for path in python_files()
        for name in _names(path)
        for word in _words(name)
        if word in FORBIDDEN_NAMES
    ]
    assert found == []


def test_the_code_has_no_todo_comments() -> None:
    marks = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in python_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line) and path != Path(__file__)
    ]
    assert found == []


def test_generated_files_are_up_to_date() -> None:
    run(sys.executable, "docs/generate.py", "--check")


def test_the_generator_explains_itself_and_refuses_what_it_does_not_know() -> None:
    shown = run(sys.executable, "docs/generate.py", "--help").stdout
    assert "--check" in shown and "written" not in shown, "nothing was written"
    command = [sys.executable, "docs/generate.py", "--chek"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and not refused.stdout and "--chek" in refused.stderr


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names(path: Path) -> Iterator[str]:
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


# ------------------------------------------------------------------------------------------------ set-up


def test_set_up_prints_each_missing_requirement_with_its_fix_on_one_line(tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    (copy / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "setup", copy / ".ci" / "setup")
    failed = subprocess.run(
        [copy / ".ci" / "setup", ".venv/.complete"],
        env={"PATH": os.environ["PATH"], "PYTHON": "/nowhere/python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert line.startswith("setup: missing: Python 3.11 or newer")
    assert "Fix: sudo apt-get install" in line
    assert not (copy / ".venv").exists()


def test_set_up_runs_again_after_a_change_or_an_interruption(tmp_path: Path) -> None:
    sources = ("console/package.json", "docs/openapi.json")
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/setup", *sources):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    stamp, built = tmp_path / ".venv" / ".complete", tmp_path / "console" / "dist" / "index.html"

    def up_to_date() -> bool:
        return subprocess.run(["make", "--question", "setup"], cwd=tmp_path, check=False).returncode == 0

    assert not up_to_date()
    stamp.parent.mkdir()
    assert not up_to_date(), "a folder without the stamp is an interrupted install"
    stamp.touch()
    assert not up_to_date(), "the console is not built"
    built.parent.mkdir()
    built.touch()
    assert up_to_date()
    for name in sources:
        later = built.stat().st_mtime + 10
        os.utime(tmp_path / name, (later, later))
        assert not up_to_date(), name
        os.utime(built, (later + 10, later + 10))
        assert up_to_date()
    for name in ("constraints.txt", "pyproject.toml", ".ci/setup"):
        later = stamp.stat().st_mtime + 10
        os.utime(tmp_path / name, (later, later))
        assert not up_to_date(), name
        os.utime(stamp, (later + 10, later + 10))
        assert up_to_date()
