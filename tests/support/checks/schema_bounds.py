"""Search of a JSON schema for numbers, texts, lists and mappings that have no bound."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any


def unbounded(schema: Mapping[str, Any], where: str = "", free_form: Collection[str] = ()) -> Iterator[str]:
    """Yield the places of a schema that have no bound.

    Args:
        schema: the JSON schema.
        where: name of its field.
        free_form: names of fields of plain data, whose bounds are those of the document.
    """
    for name, definition in schema.get("$defs", {}).items():
        yield from unbounded(definition, name, free_form)
    if "const" in schema or "enum" in schema or "$ref" in schema:
        return
    for kind in ("anyOf", "oneOf", "allOf"):
        for member in schema.get(kind, ()):
            yield from unbounded(member, where, free_form)
    match schema.get("type"):
        case "integer" | "number":
            ends = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
            yield from (f"{where}: a number" for end in ends if not end & schema.keys())
        case "string" if "maxLength" not in schema:
            yield f"{where}: a text"
        case "array":
            if "maxItems" not in schema:
                yield f"{where}: a list"
            for member in (schema.get("items"), *schema.get("prefixItems", ())):
                yield from unbounded(member or {}, f"{where}[]", free_form)
        case "object" if schema.get("additionalProperties") is not False and "properties" not in schema:
            if "maxProperties" not in schema and where not in free_form:
                yield f"{where}: a mapping"
            for part in ("propertyNames", "additionalProperties"):
                if isinstance(inner := schema.get(part), Mapping):
                    yield from unbounded(inner, f"{where}.{part}", free_form)
        case _:
            pass
    for name, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, name, free_form)
