"""Names in Python code: finds definitions whose names contain a word that this project replaced."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each definition in a file: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(alias)):
                yield node.lineno, alias
            case _:
                pass


def replaced_words(name: str, words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each word of a name that `words` replaces, with its replacement. Names of tests are texts and have none."""
    if not name.startswith("test_"):
        for word in _WORD.findall(name):
            if word.lower() in words:
                yield word.lower(), words[word.lower()]
