"""Descriptions of the fields of models: the strings below them in the source."""

import ast
import inspect
from itertools import pairwise
from typing import cast


def field_docs(model: type) -> dict[str, str]:
    """Return field → the string that follows it in the source of `model` or its bases."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each.__module__.startswith("regroup."):
            found |= _own_docs(each)
    return found


def _own_docs(model: type) -> dict[str, str]:
    body = cast(ast.ClassDef, ast.parse(inspect.cleandoc("\n" + inspect.getsource(model))).body[0]).body
    docs: dict[str, str] = {}
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs
