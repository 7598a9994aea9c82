"""What a spec may say of its Python, and what it is told where it may not."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import JobSpec, parse_spec


def spec(**environment: Any) -> JobSpec:
    """Of a script with this environment."""
    workload = {"kind": "script", "entrypoint": "/train.py"}
    return parse_spec({"name": "job", "workload": workload, "environment": environment})


def refusal(**environment: Any) -> str:
    """What is said of it."""
    with pytest.raises(SpecError) as raised:
        spec(**environment)
    (issue,) = raised.value.issues
    return f"{issue.path}: {issue.message}"


def test_without_a_word_it_is_the_platforms() -> None:
    assert spec().environment.requirements == []


@pytest.mark.parametrize(
    "requirement",
    [
        "torch==2.13.0",
        "foo[bar] >=1, <2",
        'lib; python_version > "3"',
        "lib @ https://host/lib-1.0-py3-none-any.whl",
        "lib @ git+https://robot:${TOKEN}@host/lib.git@v1",
    ],
)
def test_requirements_as_pip_knows_them(requirement: str) -> None:
    assert spec(requirements=[requirement]).environment.requirements == [requirement]


@pytest.mark.parametrize(
    ("requirement", "told"),
    [
        ("./lib", "local paths are not allowed"),
        ("/shared/lib.whl", "local paths are not allowed"),
        ("-r other.txt", "pip options are not allowed"),
        ("--index-url https://host", "PIP_INDEX_URL"),
        ("lib @ file:///shared/lib.whl", "env.PIP_FIND_LINKS"),
        ("lib @ https://robot:secret@host/lib.whl", "must not contain credentials"),
        ("torch=2", "not a requirement such as `torch==2.13.0`"),
    ],
)
def test_what_cannot_work_on_a_node_is_refused_with_what_to_do(requirement: str, told: str) -> None:
    said = refusal(requirements=["numpy", requirement])
    assert said.startswith("environment.requirements.1: ") and told in said


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"interpreter": "bin/python"}, "must be an absolute path"),
        ({"interpreter": "/opt/python", "requirements": ["torch"]}, "set requirements or interpreter"),
        ({"base": "none"}, "list torch"),
        ({"base": "conda"}, "'platform' or 'none'"),
        ({"requirements_file": "requirements.txt"}, "that the server cannot read"),
    ],
)
def test_contradictions_are_refused(environment: dict[str, Any], told: str) -> None:
    assert told in refusal(**environment)
