"""Messages about fields are the service's own, and paths are those of the user's document."""

import re
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from regroup.service.domain.errors import FieldIssue, SpecError, format_path
from regroup.service.spec.issues import find_issues
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.packages.wheel import ROOT

RAW = re.compile(
    r"Value error|Assertion failed|Input should|valid (string|integer|number|dictionary|list)|pattern|pydantic"
)
"""Phrases of the validation library."""
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**400, float("nan"), "", "x", "\x00", "yes", [], [None], {}, {"x": 1}, {"kind": "x"},
    {"min": 0}, {"auto": 1}, {"prepare": {}}, {"at": {}}, b"x", object(),
)  # fmt: skip


def issues(data: dict[str, Any]) -> list[FieldIssue]:
    try:
        parse_spec(data)
    except SpecError as error:
        return list(error.issues)
    return []


def paths(
    schema: dict[str, Any], at: tuple[str, ...] = (), root: dict[str, Any] | None = None
) -> list[tuple[str, ...]]:
    """Return the paths of all fields of a schema."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    found = [path for kind in ("anyOf", "oneOf") for each in schema.get(kind, ()) for path in paths(each, at, root)]
    for name, inner in schema.get("properties", {}).items():
        found += [(*at, name), *paths(inner, (*at, name), root)]
    return list(dict.fromkeys(found))


PATHS = paths(JobSpec.model_json_schema())


def set_at(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    name, *rest = path
    inner = data.get(name)
    inner_fields = inner if isinstance(inner, dict) else {}
    return {**data, name: set_at(inner_fields, tuple(rest), value) if rest else value}


BASES: tuple[dict[str, Any], ...] = (
    {"name": "a", "workload": {"kind": "script", "entrypoint": "/a.py"}},
    {"name": "a", "workload": {"kind": "function", "function": "m:f"},
     "training": {"global_batch": 4, "micro_batch": 2, "steps": 4}},
    {"name": "a", "workload": {"kind": "builtin", "data": {"train": ["/x"]}},
     "training": {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}},
    {"name": "a", "workload": {"kind": "builtin", "model": {"family": "convnet", "classes": 2},
                               "data": {"prepare": {"format": "jsonl", "train": ["/x"], "function": "m:f"}}},
     "training": {"global_batch": 4, "micro_batch": 1, "steps": 10}},
)  # fmt: skip


@settings(max_examples=600, derandomize=True)
@given(st.sampled_from(BASES), st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(VALUES)), max_size=3))
def test_any_wrong_value_gets_a_message_of_the_service(
    base: dict[str, Any], changes: list[tuple[tuple[str, ...], Any]]
) -> None:
    data = base
    for path, value in changes:
        data = set_at(data, path, value)
    for issue in issues(data):
        assert RAW.search(issue.message) is None, issue
        assert issue.message and issue.message[0] not in " ,;:"
        assert len(issue.message) < 2000 and len(str(issue)) < 3000
        assert not any(part in ("builtin", "script", "ray_train", "text", "prepared") for part in issue.location)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("laytou",), 1, "laytou: unknown field"),
        (("name",), "A B", "name: must have only lower-case letters, digits and '-'"),
        (("workload", "data", "train", ), ["a", 2], "workload.data.train.1: must be text"),
        (("workload", "model"), {"dims": 3}, "workload.model.dims: unknown field"),
        (("workload", "kind"), "torch", "workload: kind must be one of builtin, script, ray_train, function; got"),
        (("workload", "data"), {"prepare": {"format": "text"}}, "workload.data.prepare.train: is required"),
        (("training",), {"global_batch": 4}, "training.steps: is required"),
        (("training", "activation_checkpointing"), "some",
         "must be 'none', 'full', 'selective' or 'sqrt', or an integer, or a number"),
        (("layout", "reshard_after_forward"), "x", "reshard_after_forward: must be true or false, or an integer"),
        (("layout", "dp"), {"min": 1}, "layout.dp.target: is required"),
        (("layout", "dp"), {"min": 1, "target": 2, "max": 0}, "layout.dp.max: must be ≥ 1"),
        (("training", "optimizer", "betas"), [0.9], "training.optimizer.betas: must have more items"),
        (("training", "optimizer", "name"), "adam", "training.optimizer.name: must be 'adamw' or 'sgd'"),
        (("secrets",), {"A": {"from_env": "A=B"}}, "secrets.A.from_env: is not the name of an environment variable"),
    ],
)  # fmt: skip
def test_a_message_names_the_field_and_the_accepted_form(path: tuple[str, ...], value: Any, expected: str) -> None:
    assert expected in " | ".join(map(str, issues(set_at(BASES[2], path, value))))


def test_values_that_may_be_secret_are_not_repeated() -> None:
    found = issues({**BASES[0], "env": {"A": "s3cr3t\0"}, "secrets": {"B": "s3cr3t"}})
    assert len(found) == 2 and "s3cr3t" not in str(found)


def test_a_long_value_is_shortened() -> None:
    (issue,) = issues({**BASES[0], "name": "X" * 100_000})
    assert len(str(issue)) < 500


class Unusual(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: Literal["a", "b"] = "a"
    count: Annotated[int, Field(multiple_of=3)] = 3

    @field_validator("word")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "b":
            raise ValueError("b is not open today")
        assert value
        return value


def test_errors_of_other_validators_lose_the_prefix_of_the_library() -> None:
    with pytest.raises(ValidationError) as error:
        Unusual.model_validate(data := {"word": "b", "count": 4})
    messages = [str(issue.message) for issue in find_issues(error.value, data)]
    assert messages == ["b is not open today", "must be a multiple of 3"]


def test_a_path_quotes_keys_that_are_not_names() -> None:
    assert format_path(("env", "A=B")) == 'env["A=B"]'
    assert format_path(("a", "", 0, "b.c")) == 'a[""].0["b.c"]'
    assert format_path(("a",) * 40).endswith("…") and len(format_path(("x" * 1000,) * 3)) < 300


def test_no_other_module_renders_errors_of_the_library() -> None:
    sources = {path: path.read_text() for folder in ("api", "service") for path in (ROOT / folder).rglob("*.py")}
    found = {str(path.relative_to(ROOT)) for path, text in sources.items() if re.search(r"\[.msg.\]", text)}
    assert found == {"service/spec/issues.py"}
