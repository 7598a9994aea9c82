"""Generator of docs/job-spec.md from the spec's models. `python -m regroup.api.cli.docs.spec_reference` prints it."""

import inspect
import json
from typing import Any, cast, get_args

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from regroup.api.schemas.field_docs import field_docs
from regroup.service.spec.job import JobSpec
from regroup.service.spec.types import AutoDuration, AutoOrOffDuration, Bytes, Duration

_HEAD = """# Job spec, version 1

A spec is YAML or JSON. A spec with unknown or contradictory fields is rejected; the error names the path of the field,
its value, and the valid values. `regroup validate SPEC` checks a spec without submitting it. The server returns the
JSON Schema at `/v1/spec/schema`.

Durations are seconds or `90s`, `15m`, `2h`, `3d`, from 1 ms to 3650 days; sizes are bytes or `512MiB`, `2GiB`, up to
1 PiB. The tables give the bounds of all other fields.

A spec is read strictly, by the command line and the server alike. An error gives line and column.

- A document has at most 1 MiB, 64 levels of lists and mappings, and 20,000 values, including those that aliases of
  YAML repeat.
- Numbers are finite. Integers have at most 64 bits. Text is never read as a number, and a number never as text or as a
  boolean: write `cpus: 4`, not `cpus: "4"`.
- A key can appear only once in a mapping. Text must not contain the NUL character or a lone surrogate.
- YAML readers disagree about unquoted values such as `yes`, `010`, `0x1F`, `1_000`, `1:30` and dates. They are refused:
  quote them, or write `true`, `false` or a decimal number. `off` is refused in `args` only.
- YAML's tags and a second document in the same file are refused. Anchors, aliases and merge keys (`<<`) work.
- JSON must be sent to the server as UTF-8 with the header `Content-Type: application/json`.

The command line replaces two placeholders before it sends a spec: `${PYTHON_STDLIB}`, the folder of the Python standard
library's source code, and `${SPEC_DIR}`, the folder of the spec file. Write `$${X}` for a literal `${X}`. Environment
variables and other names are not replaced.

`regroup submit SPEC --set training.steps=100` sets one field; the value is read as YAML.

This page is generated: `python -m regroup.api.cli.docs.spec_reference > docs/job-spec.md`.
"""


def render() -> str:
    """Return the page as Markdown."""
    sections: list[str] = [_HEAD]
    _section(JobSpec, "", "The job", sections)
    return "\n".join(sections)


def _section(model: type[BaseModel], path: str, title: str, sections: list[str]) -> None:
    """Append the table of `model` and, after it, those of the models in its fields."""
    comments = field_docs(model)
    lines = [f"## {title}", "", inspect.getdoc(model) or "", ""]
    lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
    inner: list[tuple[type[BaseModel], str]] = []
    schema = model.model_json_schema()
    for name, info in model.model_fields.items():
        where = f"{path}.{name}" if path else name
        shape: dict[str, Any] = schema["properties"][name]
        models = _models_in(info.annotation)
        suffix = "[]" if shape.get("type") == "array" else ".<name>" if "additionalProperties" in shape else ""
        inner += [(each, where + suffix) for each in models]
        shape = {"$ref": ""} if "oneOf" in shape else shape
        meaning = info.description or comments.get(name) or " Or: ".join(_first_line(each) for each in models)
        default = _default_text(info.get_default(call_default_factory=True))
        cells = (f"`{where}`", _unit(info) or _type_text(shape), default, meaning)
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    sections.append("\n".join(lines) + "\n")
    for each, where in inner:
        kind = each.model_fields.get("kind")
        tag = f", `kind: {get_args(kind.annotation)[0]}`" if kind else ""
        _section(each, where, f"`{where}`{tag}", sections)


def _first_line(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    found: list[type[BaseModel]] = []
    for argument in getattr(annotation, "__args__", ()):
        found += _models_in(argument)
    return found


def _unit(info: FieldInfo) -> str:
    """`duration` or `size` for a field of those types, else nothing."""
    words = (
        ("duration", Duration), ("duration or `auto`", AutoDuration), ("duration, `auto` or `off`", AutoOrOffDuration),
        ("size", Bytes),
    )  # fmt: skip
    for word, alias in words:
        reader = next(each for each in get_args(alias) if isinstance(each, BeforeValidator))
        members = getattr(info.annotation, "__args__", ())
        if reader in info.metadata or any(reader in getattr(each, "__metadata__", ()) for each in members):
            return word
    return ""


def _type_text(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        return "mapping"
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_type_text(s) for s in shape["anyOf"] if s.get("type") != "null"))
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if shape.get("type") == "array":
        limit = f" (at most {shape['maxItems']:,})" if "maxItems" in shape else ""
        return f"list{limit} of {_type_text(shape['items'])}" if "items" in shape else f"{shape['maxItems']} values"
    if shape.get("type") == "object":
        values = shape.get("additionalProperties")
        limit = f" (at most {shape['maxProperties']:,} entries)" if "maxProperties" in shape else ""
        to = f" to {_type_text(cast(dict[str, Any], values))}" if isinstance(values, dict) and "type" in values else ""
        return f"mapping{limit}{to}"
    if shape.get("type") == "string":
        limit = f" (at most {shape['maxLength']:,} characters)" if "maxLength" in shape else ""
        return f"string{limit}" + (f" like `{shape['pattern']}`" if "pattern" in shape else "")
    bounds = [
        f"{sign} {shape[key]}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in shape
    ]
    return f"{shape.get('type', 'any')} {', '.join(bounds)}".strip()


def _default_text(default: Any) -> str:
    if default is PydanticUndefined:
        return "**required**"
    if isinstance(default, BaseModel):
        return "its defaults"
    return "none" if default is None else f"`{json.dumps(default)}`"


if __name__ == "__main__":
    print(render(), end="")
