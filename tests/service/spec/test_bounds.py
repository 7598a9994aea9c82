"""Every number, text, list and mapping of a spec has a bound, and values beyond it are refused in milliseconds."""

import copy
import time
from collections.abc import Mapping
from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.types import MAX_RANKS
from tests.support.checks.schema_bounds import unbounded

FREE_FORM = {"args"}
"""Fields of plain data. Their bounds are those of the document, and a number of values and characters."""
SCRIPT: dict[str, Any] = {"name": "a", "workload": {"kind": "script", "entrypoint": "/a.py"}}
FUNCTION: dict[str, Any] = {
    "name": "a",
    "workload": {"kind": "function", "function": "mine:train"},
    "training": {"global_batch": 4, "micro_batch": 2, "steps": 4},
}
BUILTIN: dict[str, Any] = {
    "name": "a",
    "workload": {"kind": "builtin", "data": {"train": ["/x"]}},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10},
}
MAX_S = 1.0
"""Generous for a busy machine: each refusal takes milliseconds."""


def test_every_field_of_a_spec_has_a_bound() -> None:
    assert list(unbounded(JobSpec.model_json_schema(), free_form=FREE_FORM)) == []


def test_the_search_for_bounds_finds_what_has_none() -> None:
    open_schema = {
        "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "array", "items": {"type": "string"}}}
    }
    assert list(unbounded(open_schema)) == ["a: a number", "b: a list", "b[]: a text"]


def refused(spec: Mapping[str, Any], path: str, value: Any) -> tuple[str, str]:
    """Return the path and message of the only issue of a spec with this value."""
    changed: dict[str, Any] = copy.deepcopy(dict(spec))
    *parents, last = path.split(".")
    at = changed
    for part in parents:
        at = at.setdefault(part, {})
    at[last] = value
    started_s = time.process_time()
    with pytest.raises(SpecError) as error:
        parse_spec(changed)
    assert time.process_time() - started_s < MAX_S
    (issue,) = error.value.issues
    return issue.path, issue.message


HUGE = 10**309


@pytest.mark.parametrize(
    ("spec", "path", "value", "message"),
    [
        (SCRIPT, "resources.cpus", HUGE, "must be ≤ 4,096"),
        (SCRIPT, "resources.memory", "1" * 300 + "T", "must be a number of bytes or a size such as '512MiB'"),
        (SCRIPT, "resources.memory", "9" * 18 + "T", "must be ≤ 1,125,899,906,842,624"),
        (SCRIPT, "resources.memory", HUGE, "must be ≤"),
        (SCRIPT, "max_duration", "1" * 400 + "d", "must be a number of seconds or a duration such as '90s'"),
        (SCRIPT, "max_duration", "9" * 18 + "d", "must be ≤ 315,360,000"),
        (SCRIPT, "max_duration", HUGE, "must be a number between"),
        (SCRIPT, "max_queue_time", 1e-300, "must be ≥ 0.001"),
        (SCRIPT, "recovery.hang.after", "1" * 400 + "s", "must be auto or off, or a number of seconds"),
        (SCRIPT, "recovery.hang.first_step", HUGE, "must be auto, or a number of seconds"),
        (SCRIPT, "layout.dp", {"min": 1, "target": 1, "max": 2_000_000}, "must be ≤ 131,072"),
        (SCRIPT, "layout.dp", 131_073, "must be ≤ 131,072"),
        (SCRIPT, "workload.steps", HUGE, "must be ≤ 1,000,000,000,000"),
        (SCRIPT, "workload.args", ["x"] * 5000, "must have at most 4,096 items"),
        (SCRIPT, "workload", {**SCRIPT["workload"], "args": ["x" * 32_000] * 3}, "65,536 bytes together, not 96,000"),
        (SCRIPT, "name", "x" * 64, "must have"),
        (SCRIPT, "labels", {str(number): "v" for number in range(65)}, "must have at most 64 items"),
        (SCRIPT, "depends_on", ["a"] * 257, "must have at most 256 items"),
        (SCRIPT, "storage_uri", "/" + "x" * 1024, "must have at most 1,024 characters"),
        (SCRIPT, "environment.requirements", ["torch"] * 1001, "must have at most 1,000 items"),
        (FUNCTION, "args", {"deep": [[[[[[[]]]]]]] * 2000}, "can have at most 10,000 values"),
        (FUNCTION, "args", {"text": "x" * 300_000}, "262,144 characters"),
        (FUNCTION, "seed", 2**63, "must be < 9,223,372,036,854,775,808"),
        (FUNCTION, "resume_from", "a@" + "9" * 5000, "must have at most 100 characters"),
        (FUNCTION, "training.global_batch", 2**25, "must be ≤ 16,777,216"),
        (BUILTIN, "layout", {"dp": 4, "tp": 1024, "pp": 1024}, "a job can have at most 131,072 ranks"),
        (BUILTIN, "workload.model.layers", HUGE, "must be ≤ 10,000"),
        (BUILTIN, "workload.model.dim", 2**21, "must be ≤ 1,048,576"),
        (BUILTIN, "workload.data.train", ["x"] * 1001, "must have at most 1,000 items"),
        (BUILTIN, "workload.data.train", ["x" * 5000], "must have at most 4,096 characters"),
        (BUILTIN, "training.sequence", HUGE, "must be ≤ 16,777,216"),
    ],
)  # fmt: skip
def test_a_value_beyond_its_bound_is_refused_with_the_bound(
    spec: Mapping[str, Any], path: str, value: Any, message: str
) -> None:
    found, text = refused(spec, path, value)
    assert found.startswith(path) and message in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", float("inf")), ("lr", float("nan")), ("lr", 0), ("lr", -1), ("lr", 1e-300), ("lr", 1e6), ("lr", "1e-3"),
        ("lr", True), ("betas", [1.5, 0.9]), ("betas", [0.9, -1]), ("betas", [0.9, 1]), ("betas", [0.9]),
        ("betas", [0.9, 0.9, 0.9]), ("betas", ["0.9", 0.9]), ("betas", 0.9), ("eps", 0), ("eps", 2), ("momentum", 1),
        ("momentum", -0.1), ("weight_decay", -1), ("weight_decay", 1000), ("clip_norm", 0), ("clip_norm", float("inf")),
    ],
)  # fmt: skip
def test_a_number_of_the_optimizer_without_a_meaning_is_refused_by_its_field(field: str, value: Any) -> None:
    path, message = refused(BUILTIN, f"training.optimizer.{field}", value)
    assert path.startswith(f"training.optimizer.{field}") and message.startswith("must")


@pytest.mark.parametrize(
    ("field", "value"),
    [("warmup_steps", -1), ("warmup_steps", 0.5), ("warmup_steps", True), ("min_lr_ratio", 2), ("min_lr_ratio", -1)],
)  # fmt: skip
def test_a_number_of_the_schedule_without_a_meaning_is_refused_by_its_field(field: str, value: Any) -> None:
    path, message = refused(BUILTIN, f"training.schedule.{field}", value)
    assert path == f"training.schedule.{field}" and message.startswith("must")


def test_a_weight_decay_that_reverses_signs_is_refused() -> None:
    path, message = refused(BUILTIN, "training.optimizer", {"lr": 10, "weight_decay": 0.1})
    assert path == "training.optimizer" and "would reverse the sign of the parameters: 10.0 * 0.1" in message


@pytest.mark.parametrize(
    ("env", "path", "message"),
    [
        ({"A=B": "1"}, 'env["A=B"]', "is not the name of an environment variable"),
        ({"": "x"}, 'env[""]', "a variable needs a name"),
        ({"1A": "x"}, "env.1A", "is not the name of an environment variable"),
        ({"A B": "x"}, 'env["A B"]', "is not the name"),
        ({"A\n": "x"}, 'env["A\\n"]', "is not the name"),
        ({"A": "x\0y"}, "env.A", "must not contain the NUL character"),
        ({"A": 1}, "env.A", "must be text: quote it"),
        ({"A": None}, "env.A", "must be text"),
        ({"BIG": "x" * 140_000}, "env.BIG", "must have at most 32,768 characters"),
        (dict.fromkeys("ABC", "x" * 30000), "env", "can have at most 65,536 bytes together, not 90,009"),
        ({f"V{number}": "" for number in range(513)}, "env", "must have at most 512 items"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_exist_is_refused_by_name(env: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec({**FUNCTION, "env": env})
    (issue,) = error.value.issues
    assert issue.path == path and message in issue.message
    assert issue.value is None, "a user may have put a secret there"


def test_values_keep_their_white_space() -> None:
    """Refuse to strip texts: that would change variables and arguments."""
    spec = parse_spec({**SCRIPT, "env": {"A": " x\n"}, "workload": {**SCRIPT["workload"], "args": [" ", "a "]}})
    assert spec.env == {"A": " x\n"} and spec.model_dump()["workload"]["args"] == [" ", "a "]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("args.a", float("nan")), ("args.a", [1, {"b": float("inf")}]), ("args.a", 2**63), ("args.a", {1: 2}),
        ("args.a", object()), ("args.a", b"x"),
    ],
)  # fmt: skip
def test_an_argument_that_json_cannot_represent_is_refused_by_its_place(path: str, value: Any) -> None:
    found, _ = refused(FUNCTION, path, value)
    assert found.startswith("args.a")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("training.steps", "10", "must be an integer, not text: remove the quotes"),
        ("training.steps", 10.5, "must be an integer"),
        ("training.steps", True, "must be an integer"),
        ("layout.dp", True, "must be an integer, or a mapping with min, target and max"),
        ("layout.dp", "four", "must be an integer, or a mapping with min, target and max"),
        ("layout.offload", 1, "must be true or false"),
        ("layout.offload", "yes", "must be true or false"),
        ("layout", "automatic", "must be 'auto' or a mapping of fields"),
        ("recovery.spares", False, "must be an integer"),
        ("version", True, "must be"),
        ("seed", "0x10", "must be an integer"),
        ("labels", {"a=b": "c"}, "must not contain '='"),
        ("owner", "a\x1b[2Jb", "must be one line of text without control characters"),
        ("storage_uri", "https://host/x", "has the unsupported scheme 'https'; use an absolute path, file:///"),
        ("storage_uri", "file:///x::memory://y", "chains protocols with '::'"),
    ],
)  # fmt: skip
def test_no_value_is_converted_to_another_type(path: str, value: Any, message: str) -> None:
    found, text = refused(BUILTIN, path, value)
    assert found.startswith(path) and message in text


def test_a_whole_number_may_have_an_exponent() -> None:
    spec = parse_spec({**BUILTIN, "training": {**BUILTIN["training"], "steps": 1e3}})
    assert spec.training is not None and spec.training.steps == 1000 and isinstance(spec.training.steps, int)


def test_the_largest_range_is_validated_in_milliseconds() -> None:
    started_s = time.process_time()
    spec = parse_spec({**SCRIPT, "layout": {"dp": {"min": 1, "target": 1, "max": MAX_RANKS}}})
    assert len(spec.ladder) < 2000
    assert time.process_time() - started_s < MAX_S
