"""Any text of a spec is a spec or is refused by its fields, and changes of valid specs come near both."""

import copy
import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec
from tests.support.inputs.fuzz import fuzz_settings
from tests.support.inputs.valid_specs import specs

MAX_S = 5.0
"""Generous for a busy machine."""
_BASE = {"name": "a", "workload": {"kind": "script", "entrypoint": "/a.py"}}
SEEDS: tuple[dict[str, Any], ...] = (
    {**_BASE, "layout": {"dp": {"min": 1, "max": 2**62}}},
    {**_BASE, "training": {"steps": 10**400}},
    {**_BASE, "env": {"A" * 70_000: "x"}},
    {**_BASE, "depends_on": ["a"] * 30_000},
    {**_BASE, "resources": {"memory": "9" * 5000 + "GiB"}},
    {**_BASE, "max_duration": "9" * 400 + "d"},
    {**_BASE, "workload": {"kind": ["script"]}},
)
_OUTLIERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["1e999", "010", "yes", "-1GiB", "1d1d", "../..", "s3://", "file:///" + "a/" * 3000, "\x00"]),
    st.sampled_from([{}, [], [[]], {"x": {}}]).map(copy.deepcopy),  # an example changes what it contains
)  # fmt: skip
_WRITERS = (json.dumps, yaml.safe_dump, lambda data: yaml.safe_dump(data, default_flow_style=True))


@st.composite
def _texts(draw: st.DrawFn) -> str:
    data = draw(specs())
    for _ in range(draw(st.integers(1, 3))):
        _change(draw, data)
    text = draw(st.sampled_from(_WRITERS))(data)
    if draw(st.integers(0, 3)) == 0:
        start = draw(st.integers(0, len(text)))
        text = (
            text[:start] + draw(st.text("{}[]:,&*<>|-'\"\n\t é", max_size=3)) + text[start + draw(st.integers(0, 5)) :]
        )
    return text


def _change(draw: st.DrawFn, data: dict[str, Any]) -> None:
    """Remove a field, add one, or give one an outlier, at any depth."""
    at = data
    while (inner := [value for value in at.values() if isinstance(value, dict) and value]) and draw(st.booleans()):
        at = draw(st.sampled_from(inner))
    name = draw(st.sampled_from([*sorted(at), "kind", "auto", "min", "x"]) | st.text(max_size=3))
    if draw(st.integers(0, 3)) == 0:
        at.pop(name, None)
    else:
        at[name] = draw(_OUTLIERS)


def _with_seeds(test: Any) -> Any:
    for seed in SEEDS:
        test = example(json.dumps(seed))(test)
    return test


@pytest.mark.fuzz
@fuzz_settings(40)
@given(_texts())
def _fuzz(text: str) -> None:
    started_s = time.process_time()
    try:
        spec = parse_spec(text)
        spec.model_dump_json()
    except SpecError as error:
        assert error.issues and all(issue.message for issue in error.issues)
    assert time.process_time() - started_s < MAX_S


test_any_text_is_a_spec_or_is_refused_by_its_fields = _with_seeds(_fuzz)
