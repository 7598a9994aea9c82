"""The modules that are mutated, and the tests that must notice it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("workers/parallel", "workers/train", "workers/state", "service/policy")
_TESTS = Path(__file__).with_name("tests.toml")


def modules() -> list[str]:
    """Return the paths of all modules of the folders."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"]


def folder_of(module: str) -> str:
    """Return the one of `FOLDERS` that the module is in."""
    return next(folder for folder in FOLDERS if module.startswith(f"{folder}/"))


def quick_tests_of(module: str) -> list[str]:
    """Return the quick tests of a module: its mirror file and additions of tests.toml, or the replacement there."""
    path = Path(module)
    mirror = Path("tests") / path.parent / f"test_{path.name}"
    listed = tomllib.loads(_TESTS.read_text())
    tests = listed["instead"].get(module) or ([str(mirror)] if (ROOT / mirror).exists() else [])
    tests = [*tests, *listed["also"].get(module, [])]
    if not tests:
        raise LookupError(f"{module} has no tests: add {mirror}, or a line in {_TESTS.relative_to(ROOT)}")
    return tests
