"""The build of the console: its files in the wheel, its packages, and the files that the repository stores."""

import json
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.support.packages.wheel import ROOT

CONSOLE = ROOT / "console"
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "console.py"))
PERMISSIVE = {"MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD"}
_MOST_DIRECT = 5
_LONGEST_LINE = 1000
"""Characters of a line. Built files have longer ones."""


def test_the_wheel_contains_the_page_and_all_that_it_names(wheel: Path) -> None:
    archive = ZipFile(wheel)
    names = {
        name.removeprefix("regroup/console/") for name in archive.namelist() if name.startswith("regroup/console/")
    }
    page = archive.read("regroup/console/index.html").decode()
    named = set(re.findall(r'(?:src|href)="\./([^"]+)"', page))
    assert {Path(name).suffix for name in named} == {".js", ".css", ".svg"} and named <= names
    assert '<base href="/console/"' in page
    scripts = "".join(archive.read(f"regroup/console/{name}").decode() for name in names if name.endswith(".js"))
    chunks = set(re.findall(r"[\w-]+-[\w-]{8}\.(?:js|css)", scripts))
    assert chunks and {f"assets/{chunk}" for chunk in chunks} <= names
    assert not any(name.endswith(".map") for name in names)


def test_the_wheel_contains_the_licenses_of_all_packages_in_the_build(wheel: Path) -> None:
    text = ZipFile(wheel).read("regroup/console/licenses.txt").decode()
    for name in SCRIPT["packages"]():
        assert re.search(rf"^{re.escape(name)}\n=+\n\n\S", text, re.MULTILINE), name


def test_few_packages_run_in_browsers_and_all_are_permissive() -> None:
    direct = json.loads((CONSOLE / "package.json").read_text())["dependencies"]
    found = SCRIPT["packages"]()
    assert len(direct) <= _MOST_DIRECT and direct.keys() <= found.keys()
    assert {name: license for name, license in found.items() if license not in PERMISSIVE} == {}


def test_nothing_that_is_built_or_of_others_is_stored() -> None:
    listed = subprocess.run(["git", "ls-files", "console"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [path for path in listed.stdout.splitlines() if path != "console/package-lock.json"]
    assert "console/package.json" in files
    made = tuple(f"console/{name}" for name in SCRIPT["MADE"])
    assert [path for path in files if path.startswith(made)] == []
    lines = {path: max(map(len, (ROOT / path).read_text().splitlines() or [""])) for path in files}
    assert {path: length for path, length in lines.items() if length > _LONGEST_LINE} == {}
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"console/dist/", "console/node_modules/", "console/src/api/schema.ts"} <= set(ignored)


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [
        ("v20.19.0\n", True),
        ("v24.1.2\n", True),
        ("v20.18.3\n", False),
        ("v18.20.4\n", False),
        ("", False),
        ("x", False),
    ],
)
def test_an_old_node_is_not_used(version: str, is_enough: bool) -> None:
    assert SCRIPT["is_new_enough"](version) is is_enough


def test_the_packages_of_the_lock_file_come_from_the_public_registry() -> None:
    locked = json.loads((CONSOLE / "package-lock.json").read_text())["packages"]
    hosts = {each["resolved"].split("/")[2] for each in locked.values() if "resolved" in each}
    assert hosts <= {"registry.npmjs.org"}
    assert [path for path, each in locked.items() if path and not each.get("integrity")] == []
