"""Rules of the folders of the product: their sizes, and imports in one direction only."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.packages.wheel import PACKAGES, ROOT

_MODULES_OF_A_FOLDER = 25


def test_no_folder_has_more_than_25_modules() -> None:
    sizes = Counter(path.parent for path in _modules().values() if path.name != "__init__.py")
    assert sizes, "modules are found"
    assert {str(folder): count for folder, count in sizes.items() if count > _MODULES_OF_A_FOLDER} == {}


def test_no_two_folders_import_each_other() -> None:
    modules = _modules()
    edges = _imports_between_folders(modules)
    assert len(edges) > 100, "imports are found"
    both = {
        f"{folder} <-> {other}": (sorted(edges[folder, other])[0], sorted(edges[other, folder])[0])
        for folder, other in edges
        if folder < other and (other, folder) in edges
    }
    assert both == {}


def test_the_search_finds_folders_that_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "upper" / "lower").mkdir(parents=True)
    upper, lower = tmp_path / "upper" / "a.py", tmp_path / "upper" / "lower" / "b.py"
    upper.write_text("from regroup.upper.lower import b")
    lower.write_text("import regroup.upper.a")
    edges = _imports_between_folders({"regroup.upper.a": upper, "regroup.upper.lower.b": lower})
    assert edges.keys() == {(str(upper.parent), str(lower.parent)), (str(lower.parent), str(upper.parent))}


def _modules() -> dict[str, Path]:
    """Return the modules of the product: name → file."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(("regroup", *parts)).removesuffix(".__init__")] = path
    return found


def _imports_between_folders(modules: dict[str, Path]) -> dict[tuple[str, str], set[str]]:
    """Return the imports between folders: (importing folder, imported folder) → `module -> module`."""
    edges: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, path in modules.items():
        for imported in _imported(ast.parse(path.read_text()), modules):
            if (folder := modules[imported].parent) != path.parent:
                edges[str(path.parent), str(folder)].add(f"{name} -> {imported}")
    return edges


def _imported(tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            submodules = [name for name in names if name in modules]
            yield from submodules
            if not submodules and node.module in modules:
                yield node.module
