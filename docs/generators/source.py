"""Python source files as syntax trees, and the parts of them that reference pages show."""

import ast
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("api", "service", "workers")


def parse_module(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(), filename=str(path))


def find_class(path: Path, name: str) -> ast.ClassDef:
    """Return a class of a file.

    Raises:
        LookupError: the file has no class of that name.
    """
    for node in parse_module(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{path} has no class {name!r}; correct the name in docs/generators")


def attribute_docs(node: ast.ClassDef | ast.FunctionDef) -> dict[str, str]:
    """Return the string that follows each assignment in the body of a class or function."""
    found: dict[str, str] = {}
    for statement, following in pairwise(node.body):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        else:
            continue
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = text
            case _:
                pass
    return found


def table_row(*cells: str) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
