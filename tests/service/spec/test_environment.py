"""The Python environment of a spec, and the errors for illegal ones."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import JobSpec, parse_spec


def spec(**environment: Any) -> JobSpec:
    """Return the spec of a script with this environment."""
    workload = {"kind": "script", "entrypoint": "/train.py"}
    return parse_spec({"name": "job", "workload": workload, "environment": environment})


def refusal(**environment: Any) -> str:
    """Return the error for this environment."""
    with pytest.raises(SpecError) as raised:
        spec(**environment)
    (issue,) = raised.value.issues
    return f"{issue.path}: {issue.message}"


def test_the_default_environment_is_that_of_the_platform() -> None:
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
def test_requirements_have_the_syntax_of_pip(requirement: str) -> None:
    assert spec(requirements=[requirement]).environment.requirements == [requirement]


@pytest.mark.parametrize(
    ("requirement", "message"),
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
def test_a_requirement_that_cannot_work_on_a_node_is_refused_with_a_remedy(requirement: str, message: str) -> None:
    error = refusal(requirements=["numpy", requirement])
    assert error.startswith("environment.requirements.1: ") and message in error


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"interpreter": "bin/python"}, "must be an absolute path"),
        ({"interpreter": "/opt/python", "requirements": ["torch"]}, "set requirements or interpreter"),
        ({"base": "none"}, "list torch"),
        ({"base": "conda"}, "'platform' or 'none'"),
        ({"requirements_file": "requirements.txt"}, "that the server cannot read"),
    ],
)
def test_contradictory_fields_are_refused(environment: dict[str, Any], message: str) -> None:
    assert message in refusal(**environment)
