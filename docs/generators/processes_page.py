"""Picture and table of processes and folders: layers from the import contracts, arrows from the imports in the code."""

import ast
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from xml.sax.saxutils import escape

from generators.source import PRODUCT, ROOT, parse_module, table_row

_PAGE = """# Processes and folders

`make docs` draws this picture from the import contracts of `pyproject.toml` and from the imports in the code.
`make check` runs the contracts (`lint-imports`).

![Folders by layer, coloured by process, with their imports](processes.svg)

A folder imports only folders that are drawn below it. A line is one such import; imports of `domain`, `spec` and
`contract` are in the table only, because nearly every folder has them. The colour is the process that runs the
folder. Folders next to each other without a line are independent. In particular, `service/controller` and
`service/supervisor` never import each other: they meet through `service/ports` and through typed messages.

| folder | process | imports |
|---|---|---|
"""
_PROCESSES = {
    "api/app": "server",
    "api/serve": "server",
    "api/web": "server",
    "api/schemas": "shared",
    "api/client": "user",
    "api/live": "user",
    "api/cli": "user",
    "api/chaos": "user",
    "api/mcp": "user",
    "service/server": "server",
    "service/gateway": "gateway",
    "service/remote_cluster": "server",
    "service/operations": "server",
    "service/observability": "server",
    "service/controller": "server",
    "service/cluster_state": "server",
    "service/blobs": "server",
    "service/store": "server",
    "service/tasks": "server",
    "service/local": "server",
    "service/settings": "server",
    "service/supervisor": "supervisor",
    "service/ports": "shared",
    "service/ray_adapter": "adapter",
    "service/domain": "shared",
    "service/documents": "shared",
    "service/spec": "shared",
    "service/policy": "shared",
    "service/planner": "shared",
    "service/simulator": "shared",
    "service/chaos": "shared",
    "workers/agent": "agent",
    "workers/environment": "agent",
    "workers/zygote": "zygote",
    "workers/contract": "shared",
    "workers/storage": "shared",
    "workers/torch_internals": "rank",
    "workers/os": "shared",
    "workers/rank": "rank",
    "workers/train": "rank",
    "workers/parallel": "rank",
    "workers/models": "rank",
    "workers/state": "rank",
    "workers/data": "rank",
    "workers/probe": "rank",
}
_LEGEND = {
    "user": ("#fde68a", "command line, notebook"),
    "server": ("#bfdbfe", "control plane"),
    "gateway": ("#fde2e2", "gateway"),
    "supervisor": ("#fecaca", "supervisor (one per job)"),
    "agent": ("#bbf7d0", "agent (one per job and node)"),
    "zygote": ("#d9f99d", "zygote"),
    "rank": ("#e9d5ff", "rank (one per device)"),
    "adapter": ("#fed7aa", "adapter to Ray"),
    "shared": ("#e5e7eb", "shared pure code and records"),
}
_UNDRAWN = frozenset({"service/domain", "service/spec", "workers/contract", "api/schemas"})
"""Targets of imports that are left out of the picture, but not of the table."""
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _ROW = 132, 30, 14, 58
_WIDTH = 860


@dataclass(frozen=True)
class Folder:
    """A second-level folder or module of the product."""

    name: str
    imports: tuple[str, ...]


def render() -> tuple[str, str]:
    """Return the page and the picture.

    Raises:
        LookupError: a folder has no process in this file.
    """
    layers = _layers()
    folders = _folders()
    in_layers = {name for rows in layers.values() for row in rows for name in row}
    if missing := sorted((folders.keys() | in_layers) ^ _PROCESSES.keys()):
        raise LookupError(f"docs/generators/processes_page.py: add to or remove from _PROCESSES: {', '.join(missing)}")
    rows = [
        table_row(
            f"`{name}`", _LEGEND[_PROCESSES[name]][1],
            ", ".join(f"`{each}`" for each in folders[name].imports),
        )
        for package in PRODUCT for row in layers[package] for name in row
    ]  # fmt: skip
    return _PAGE + "\n".join(rows) + "\n", _picture(layers, folders)


def _layers() -> dict[str, list[list[str]]]:
    """Return the layers of each top-level package, from the import contracts."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: dict[str, list[list[str]]] = {}
    for contract in contracts:
        for container in contract.get("containers", []):
            package = container.removeprefix("regroup.")
            if package in PRODUCT:
                found[package] = [
                    [f"{package}/{name.strip()}" for name in row.split("|")] for row in contract["layers"]
                ]
    return found


def _folders() -> dict[str, Folder]:
    """Return each folder with the folders that its modules import at run time."""
    modules: set[str] = set()
    imports: dict[str, set[str]] = defaultdict(set)
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if len(parts) < 3 and parts[-1] == "__init__":
                continue
            name = "/".join(parts[:2])
            modules.add(name)
            for imported in _imports(parse_module(path)):
                target = "/".join(imported.split(".")[1:3])
                if imported.startswith("regroup.") and target != name and target.count("/") == 1:
                    imports[name].add(target)
    return {name: Folder(name, tuple(sorted(imports[name] & modules))) for name in modules}


def _imports(tree: ast.Module) -> list[str]:
    """Return the dotted names that a module imports, without those for type checking."""
    guarded = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def _picture(layers: dict[str, list[list[str]]], folders: dict[str, Folder]) -> str:
    """Return the drawing as SVG."""
    boxes: dict[str, tuple[float, float]] = {}
    parts: list[str] = []
    y = 66.0
    for package in PRODUCT:
        top = y - 12
        for row in layers[package]:
            width = len(row) * _BOX_WIDTH + (len(row) - 1) * _GAP
            for number, name in enumerate(row):
                boxes[name] = (110 + (_WIDTH - 130 - width) / 2 + number * (_BOX_WIDTH + _GAP), y)
            y += _ROW
        height = y - top - 16
        parts.append(
            f'<rect x="8" y="{top:.0f}" width="{_WIDTH - 16}" height="{height:.0f}" rx="8"'
            ' fill="none" stroke="#9ca3af"/>'
            f'<text x="20" y="{top + 24:.0f}" font-weight="bold">{package}/</text>'
        )
        y += 14
    for name in boxes:
        for target in folders[name].imports:
            if target not in _UNDRAWN:
                parts.append(_line(boxes[name], boxes[target]))
    for name, (x, top) in boxes.items():
        colour = _LEGEND[_PROCESSES[name]][0]
        label = name.partition("/")[2]
        parts.append(
            f"<g><title>{escape(name)} imports {escape(', '.join(folders[name].imports) or 'nothing')}</title>"
            f'<rect x="{x:.0f}" y="{top:.0f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"'
            f' fill="{colour}" stroke="#6b7280"/>'
            f'<text x="{x + _BOX_WIDTH / 2:.0f}" y="{top + 20:.0f}" text-anchor="middle">{escape(label)}</text></g>'
        )
    for number, (colour, text) in enumerate(_LEGEND.values()):
        x, top = 12 + number % 4 * 212, 8 + number // 4 * 20
        parts.append(
            f'<rect x="{x}" y="{top}" width="14" height="12" fill="{colour}" stroke="#6b7280"/>'
            f'<text x="{x + 19}" y="{top + 11}" font-size="11">{escape(text)}</text>'
        )
    attributes = f'viewBox="0 0 {_WIDTH} {y:.0f}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a curve from the lower edge of one box to the upper edge of another."""
    x1, y1 = start[0] + _BOX_WIDTH / 2, start[1] + _BOX_HEIGHT
    x2, y2 = end[0] + _BOX_WIDTH / 2, end[1]
    bend = (y2 - y1) / 2
    return (
        f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"'
        ' fill="none" stroke="#4b5563" stroke-opacity="0.28"/>'
    )
