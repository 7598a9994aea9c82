"""The documentation site builds without warnings, its navigation lists every page, and its links point to files."""

import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages.wheel import ROOT

BUILD_SITE = runpy.run_path(str(ROOT / "docs" / "build_site.py"))
PAGES = {*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / page for page in BUILD_SITE["EXTRA_PAGES"])}
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
WHERE = ROOT / "docs" / "architecture" / "where.md"


def listed(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inside in entry.values():
                yield from [inside] if isinstance(inside, str) else listed(inside)


def test_the_navigation_lists_every_page_once() -> None:
    pages = list(listed(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    own = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages) == sorted(own | set(BUILD_SITE["EXTRA_PAGES"].values()))


def test_the_site_builds_in_strict_mode(tmp_path: Path) -> None:
    site = BUILD_SITE["build"](tmp_path / "docs")
    index = (site / "index.html").read_text()
    assert "Quickstart" in index and (site / "search.json").exists()
    assert not re.search(r'(?:src|<link[^>]* href)="https?://', index), "the page loads files from another host"


def test_a_broken_anchor_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = tmp_path / "docs"
    original = BUILD_SITE["build"].__globals__["stage"]

    def stage_with_fault(folder: Path) -> None:
        original(folder)
        with (folder / "source" / "index.md").open("a") as page:
            page.write("\n[broken](glossary.md#no-such-heading)\n")

    monkeypatch.setitem(BUILD_SITE["build"].__globals__, "stage", stage_with_fault)
    with pytest.raises(subprocess.CalledProcessError):
        BUILD_SITE["build"](staged)


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_point_to_existing_files(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    broken = [
        target
        for target, _ in LINK.findall(text)
        if target and "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    assert broken == []


def test_each_question_names_a_file_that_a_search_finds() -> None:
    row = re.compile(r"^\| (.*\?) \| `(\w+)` \| \[(\S+)\]\(\.\./\.\./(\S+)\) \|", re.MULTILINE)
    answers = row.findall(WHERE.read_text())
    assert len(answers) >= 12
    for question, noun, shown, path in answers:
        assert shown == path and (ROOT / path).is_file(), path
        assert all(word.removesuffix("s") in question.lower() for word in noun.split("_")), question
        assert noun in path, f"a search for {noun} does not find {path}"


def test_the_table_of_capabilities_has_a_file_in_each_filled_cell() -> None:
    table = WHERE.read_text().split("## Questions")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "](../../" in line]
    assert len(rows) >= 15
    assert all((ROOT / path).is_file() for path in re.findall(r"\(\.\./\.\./([^)]+)\)", table))
