"""Conversion of a spec file to the mapping that is sent: apply `--set` values and replace the two placeholders."""

import re
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from regroup.service.documents.document import MAX_BYTES, DocumentError, in_file
from regroup.service.documents.json_text import parse_json
from regroup.service.documents.tree import Places
from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.spec.job import UNTYPED

_PLACEHOLDER = re.compile(r"\$(\$)?\{(\w+)\}")


def read_spec(path: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Read the mapping in `path`, apply `settings` (`path=value`) and replace placeholders.

    Raises:
        SpecError: the file is not a readable mapping, a setting is malformed, or a placeholder is unknown.
    """
    data = read_document(path)
    if not isinstance(data, dict):
        raise SpecError([FieldIssue("", "a spec file must contain a mapping of fields", str(path))])
    spec = cast(dict[str, Any], data)
    for setting in settings:
        set_value(spec, setting)
    return cast(dict[str, Any], fill_in(spec, placeholders(path)))


def read_document(path: Path) -> object:
    """Read a JSON file, or a YAML file of any other name, as strictly as the server.

    Raises:
        SpecError: the file cannot be read, or contains what the reader refuses; the message has line and column.
    """
    try:
        with path.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError([FieldIssue("", f"cannot read the spec: {error.strerror}", str(path))]) from error
    try:
        return parse_json(source) if path.suffix == ".json" else parse_yaml(source, UNTYPED)
    except DocumentError as error:
        raise in_file(error, path) from error


def read_places(path: Path) -> Places:
    """Return the positions of the fields in a file that `read_document` accepts; empty if it cannot be read again."""
    places: Places = {}
    try:
        source = path.read_bytes()
        if path.suffix == ".json":
            parse_json(source, places)
        else:
            parse_yaml(source, places=places)
    except (OSError, DocumentError):
        return {}
    return places


def placeholders(path: Path) -> dict[str, str]:
    """Return the values of the placeholders `${NAME}` in the spec at `path`. Environment variables are not included."""
    return {"PYTHON_STDLIB": sysconfig.get_path("stdlib"), "SPEC_DIR": str(path.resolve().parent)}


def set_value(spec: dict[str, Any], setting: str) -> None:
    """Apply one `path=value` to `spec`. The value is parsed as YAML, so `3` is a number and `[a, b]` a list.

    Raises:
        SpecError: `=` is missing, or a part of the path is neither a mapping nor a list.
    """
    path, separator, text = setting.partition("=")
    if not separator or not path:
        raise SpecError([FieldIssue("--set", "needs path=value, e.g. training.steps=100", setting)])
    value = _parse_value(path, text, setting)
    *parents, last = path.split(".")
    at: Any = spec
    for index, part in enumerate(parents):
        if isinstance(at, dict) and cast(dict[str, Any], at).get(part) is None:
            at[part] = {}
        at = _child(at, part, ".".join(parents[: index + 1]), setting)
    if isinstance(at, dict):
        at[last] = value
    else:
        _child(at, last, path, setting)
        at[int(last)] = value


def _parse_value(path: str, text: str, setting: str) -> object:
    try:
        return parse_yaml(text, UNTYPED, path.split("."))
    except DocumentError as error:
        message = "; ".join(f"{issue.path}: {issue.message}".removeprefix(": ") for issue in error.issues)
        raise SpecError([FieldIssue("--set", f"the value is not readable: {message}", setting)]) from error


def _child(at: Any, part: str, path: str, setting: str) -> Any:
    if isinstance(at, dict):
        return cast(dict[str, Any], at)[part]
    items = cast(list[Any], at) if isinstance(at, list) else []
    if part.isdecimal() and int(part) < len(items):
        return items[int(part)]
    raise SpecError([FieldIssue("--set", f"this spec has no field {path}", setting)])


def fill_in(value: object, meanings: Mapping[str, str], path: str = "") -> object:
    """Return `value` with `${NAME}` replaced in every string; `$${NAME}` becomes `${NAME}`.

    Raises:
        SpecError: a placeholder is unknown.
    """
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        return {key: fill_in(item, meanings, f"{path}.{key}" if path else str(key)) for key, item in fields.items()}
    if isinstance(value, list):
        return [fill_in(item, meanings, f"{path}.{i}") for i, item in enumerate(cast(list[object], value))]
    if not isinstance(value, str):
        return value

    def meaning(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in meanings:
            valid = ", ".join(f"${{{name}}}" for name in meanings)
            message = f"unknown placeholder ${{{name}}}: use {valid}, or $${{X}} for a literal ${{X}}"
            raise SpecError([FieldIssue(path, message, value)])
        return meanings[name]

    return _PLACEHOLDER.sub(meaning, value)
