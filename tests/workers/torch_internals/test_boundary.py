"""Private names of torch are used in one package only."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.packages.wheel import ROOT

PACKAGE = ROOT / "workers/torch_internals"
_MODULES = frozenset({"torch", "dist", "dcp", "distributed_c10d"})
"""Names under which modules of torch are imported."""


def _private(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute) and (names := _chain(node)) and names[0].partition(".")[0] in _MODULES:
            pass
        else:
            continue
        yield from (name for name in names if any(_is_private(part) for part in name.split(".")))


def _chain(node: ast.Attribute) -> list[str]:
    """Return `a.b.c` for such an expression, and nothing for an attribute of another expression."""
    parts, below = [node.attr], node.value
    while isinstance(below, ast.Attribute):
        parts, below = [below.attr, *parts], below.value
    return [".".join([below.id, *parts])] if isinstance(below, ast.Name) else []


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def test_the_search_finds_each_form(tmp_path: Path) -> None:
    source = tmp_path / "uses.py"
    source.write_text(
        "import torch._dynamo\nfrom torch._C import x\nfrom torch import _foreach_norm\n"
        "def f():\n    return torch.ops._c10d.y(torch.__version__, torch.float32)\n"
    )
    assert {"torch._dynamo", "torch._C.x", "torch._foreach_norm", "torch.ops._c10d.y"} <= {*_private(source)}
    assert not any("__version__" in name or "float32" in name for name in _private(source))


def test_private_names_of_torch_are_used_in_one_package_only() -> None:
    folders = [ROOT / name for name in ("workers", "service", "api", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*.py") if PACKAGE not in path.parents]
    assert len(files) > 400
    assert {str(path.relative_to(ROOT)): found for path in files if (found := [*_private(path)])} == {}
