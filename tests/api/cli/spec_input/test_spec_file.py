import sysconfig
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.spec_input.spec_file import fill_in, read_spec, set_value
from regroup.service.domain.errors import SpecError


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("training.steps=7", {"training": {"steps": 7, "keep": 1}}),
        ("training.schedule.name=constant", {"training": {"keep": 1, "schedule": {"name": "constant"}}}),
        ("labels={a: b}", {"training": {"keep": 1}, "labels": {"a": "b"}}),
        ("name=a=b", {"training": {"keep": 1}, "name": "a=b"}),
        ("storage_uri=null", {"training": {"keep": 1}, "storage_uri": None}),
    ],
)
def test_set_parses_yaml_values_and_creates_the_path(setting: str, expected: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"training": {"keep": 1}}
    set_value(spec, setting)
    assert spec == expected


def test_set_changes_items_of_lists() -> None:
    spec = {"faults": [{"at": {"step": 1}}], "preload": ["a", "b"]}
    set_value(spec, "faults.0.at.step=9")
    set_value(spec, "preload.1=c")
    assert spec == {"faults": [{"at": {"step": 9}}], "preload": ["a", "c"]}


@pytest.mark.parametrize("setting", ["steps", "=3", "name.deeper=1", "faults.4.at=1", "faults.x=1", "a=[1"])
def test_an_impossible_setting_is_rejected_with_its_text(setting: str) -> None:
    with pytest.raises(SpecError) as refused:
        set_value({"name": "x", "faults": [{}]}, setting)
    assert refused.value.issues[0].path == "--set" and refused.value.issues[0].value == setting


def test_only_defined_placeholders_are_replaced_in_all_strings() -> None:
    filled = fill_in({"a": ["${X}/b", 3], "c": "$${X} ${X}"}, {"X": "/x"})
    assert filled == {"a": ["/x/b", 3], "c": "${X} /x"}
    with pytest.raises(SpecError, match=r"a\.0: unknown placeholder \$\{HOME\}: use \$\{X\}"):
        fill_in({"a": ["${HOME}"]}, {"X": "/x"})


def test_a_file_is_read_with_settings_and_placeholders(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\ndata: ['${PYTHON_STDLIB}/json', '${SPEC_DIR}/text']\n")
    assert read_spec(path, ["name=b"]) == {
        "name": "b",
        "data": [f"{sysconfig.get_path('stdlib')}/json", f"{tmp_path}/text"],
    }


@pytest.mark.parametrize("content", ["a: [", "- a list", "", "\ufffe\x00"])
def test_a_file_without_a_mapping_is_rejected_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(content)
    with pytest.raises(SpecError, match=r"spec\.yaml"):
        read_spec(path)


def test_a_missing_file_is_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"No such file.*gone\.yaml"):
        read_spec(tmp_path / "gone.yaml")
