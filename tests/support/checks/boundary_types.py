"""Find `dict[str, Any]` and `Mapping[str, Any]` in public signatures at process boundaries."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BOUNDARIES = (
    "service/ports",
    "service/ray_adapter",
    "service/remote_cluster",
    "service/supervisor/supervisor.py",
    "workers/agent/agent.py",
    "workers/agent/standby.py",
    "workers/contract",
)
"""Modules whose public names are called from another process or describe what travels between processes."""
CODECS = ("workers/contract/codec.py", "service/remote_cluster/wire.py")
"""Modules that convert records to plain data and back: only they may know both."""
_CODEC_NAMES = frozenset({"to_json", "from_json", "encode", "decode", "set_fields"})


@dataclass(frozen=True)
class Untyped:
    """An untyped mapping at a boundary."""

    path: str
    name: str
    """`Class.method`, `Class.field` or `function`."""
    annotation: str


def untyped_mappings() -> list[Untyped]:
    """Return every untyped mapping in the public signatures and fields of the boundary modules."""
    return [found for path in _modules() for found in _in_module(path)]


def _modules() -> Iterator[Path]:
    for boundary in BOUNDARIES:
        place = ROOT / boundary
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        yield from (file for file in files if str(file.relative_to(ROOT)) not in CODECS)


def _in_module(path: Path) -> Iterator[Untyped]:
    where = str(path.relative_to(ROOT))
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                yield from _in_definition(where, inner, f"{node.name}.")
        else:
            yield from _in_definition(where, node, "")


def _in_definition(path: str, node: ast.stmt, prefix: str) -> Iterator[Untyped]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield from _in_annotation(path, f"{prefix}{node.target.id}", node.annotation)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_public = not node.name.startswith("_") or node.name == "__init__"
        if is_public and node.name not in _CODEC_NAMES:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for annotation in (*(argument.annotation for argument in arguments), node.returns):
                yield from _in_annotation(path, f"{prefix}{node.name}", annotation)


def _in_annotation(path: str, name: str, annotation: ast.expr | None) -> Iterator[Untyped]:
    if annotation is None or name.rpartition(".")[2].startswith("_"):
        return
    text = ast.unparse(annotation).replace("'", "")
    if "dict[str, Any]" in text or "Mapping[str, Any]" in text:
        yield Untyped(path, name, text)
