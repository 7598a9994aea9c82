"""Texts that a person reads in one file: prose, docstrings, comments, string literals, names of tests."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CODE_SPAN = re.compile(r"(`+)(?:.|\n)+?\1")
_LINK_TARGET = re.compile(r"\]\([^)\s]*\)")
_URL = re.compile(r"\w+://\S+")
_TAG = re.compile(r"<[^<>\n]*>")
_FENCE = re.compile(r"^\s*(```|~~~)")
_COMMENT = re.compile(r"(?:^|\s)#+!?\s(.*)$")
_MARKUP = re.compile(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_WITH_COMMENTS = (".toml", ".yaml", ".yml", ".sh", ".cfg", ".ini", ".txt", ".mako", "")
_WORDS = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True)
class Text:
    """One text: its kind, as `phrases.toml` names them, and its lines, white space at their ends removed."""

    kind: str
    lines: tuple[tuple[int, str], ...]
    """Line number in the file, and the text of that line."""
    is_function: bool = field(default=False)
    """A docstring whose first line must be an imperative."""

    @property
    def joined(self) -> str:
        """All lines as one, code spans replaced by a word."""
        return _CODE_SPAN.sub(_span, " ".join(line for _, line in self.lines if line))

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds the character of `joined` at `offset`."""
        end = 0
        for number, line in self.lines:
            end += len(line) + 1 if line else 0
            if offset < end:
                return number
        return self.lines[-1][0]


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the texts of a file; nothing for a kind of file that people do not read."""
    try:
        source = path.read_text()
    except UnicodeDecodeError:
        return
    if path.suffix == ".py":
        yield from _python_texts(source)
    elif path.suffix == ".md":
        yield from _markdown_texts(source)
    elif path.suffix in _WITH_COMMENTS:
        yield from _comments(list(enumerate(source.splitlines(), 1)))


# ------------------------------------------------------------------------------------------------ Python


def _python_texts(source: str) -> Iterator[Text]:
    nodes = list(ast.walk(ast.parse(source)))
    documented = set[int]()
    for node in nodes:
        for value, owner in _docstrings(node):
            documented.add(id(value))
            is_function = isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_value(owner)
            yield Text("docstring", _numbered(str(value.value), value), is_function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text("test-name", ((node.lineno, node.name.removeprefix("test_").replace("_", " ")),))
    yield from _strings(nodes, documented)
    yield from _python_comments(source)


def _docstrings(node: ast.AST) -> Iterator[tuple[ast.Constant, ast.AST | None]]:
    """Yield string statements; the one that opens a module, class or function with its owner, others without."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    is_owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    for index, statement in enumerate(body):
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value, node if is_owner and index == 0 else None


def _is_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the caller sees a value and not a function: a property, or a fixture of pytest."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(re.search(r"property|fixture|\.(setter|getter)$|validator|serializer", text) for text in decorators)


def _strings(nodes: Sequence[ast.AST], documented: set[int]) -> Iterator[Text]:
    others = documented | {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            value = "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            value = node.value
        else:
            continue
        if len(_WORDS.findall(value)) >= 3 and " " in value:
            yield Text("string", _numbered(value, node))


def _numbered(value: str, node: ast.expr) -> tuple[tuple[int, str], ...]:
    lines = value.splitlines() or [""]
    spans_lines = (node.end_lineno or node.lineno) - node.lineno + 1 == len(lines)
    return tuple((node.lineno + (index if spans_lines else 0), line.strip()) for index, line in enumerate(lines))


def _python_comments(source: str) -> Iterator[Text]:
    found: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            is_alone = not token.line[: token.start[1]].strip()
            found.append((token.start[0] if is_alone else -token.start[0], token.string.lstrip("#!: ").rstrip("- ")))
    yield from _blocks(found)


def _blocks(comments: list[tuple[int, str]]) -> Iterator[Text]:
    """Join comments of adjacent lines; those with a negative line number stand behind code, each by itself."""
    block: list[tuple[int, str]] = []
    for number, text in comments:
        if block and (number < 0 or number != block[-1][0] + 1):
            yield Text("comment", tuple(block))
            block = []
        block.append((abs(number), text))
        if number < 0:
            yield Text("comment", tuple(block))
            block = []
    if block:
        yield Text("comment", tuple(block))


# ------------------------------------------------------------------------------------------------ other files


def _comments(lines: list[tuple[int, str]]) -> Iterator[Text]:
    found: list[tuple[int, str]] = []
    for number, line in lines:
        if match := _COMMENT.search(line):
            found.append((number if line.lstrip().startswith("#") else -number, match[1].strip("- ")))
    yield from _blocks(found)


def _markdown_texts(source: str) -> Iterator[Text]:
    paragraph: list[tuple[int, str]] = []
    fenced: list[tuple[int, str]] | None = None
    for number, raw in enumerate([*source.splitlines(), ""], 1):
        if _FENCE.match(raw):
            if fenced is not None:
                yield from _comments(fenced)
            fenced = [] if fenced is None else None
            continue
        if fenced is not None:
            fenced.append((number, raw))
            continue
        line = _plain(raw)
        starts = _ITEM.match(raw) or raw.startswith(("#", "|", ">")) or not line
        if starts and paragraph:
            yield Text("prose", tuple(paragraph))
            paragraph = []
        if raw.startswith("#"):
            yield Text("heading", ((number, line.lstrip("# ")),))
        elif raw.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", raw):
                if _WORDS.search(_plain(cell)):
                    yield Text("prose", ((number, _plain(cell)),))
        elif line:
            paragraph.append((number, _ITEM.sub("", line)))


def _plain(line: str) -> str:
    """Return a line of Markdown without link targets, tags and emphasis; code spans stay for `Text.joined`."""
    line = _URL.sub("URL", _LINK_TARGET.sub("]", line))
    pieces = re.split(r"(`[^`]*`)", line)
    kept = [piece if piece.startswith("`") else _MARKUP.sub("", _TAG.sub("", piece)) for piece in pieces]
    return "".join(kept).replace("[", "").replace("]", "").strip()


def _span(match: re.Match[str]) -> str:
    """Return a word that replaces a code span, of the same length, so that offsets stay valid."""
    length = len(match[0])
    return ("CODE" + "_" * length)[:length]
