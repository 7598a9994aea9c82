"""References to secrets in a spec."""

from typing import Any

import pytest
from pydantic import ValidationError

from regroup.service.spec.job import parse_spec
from regroup.service.spec.secrets import SecretRef


def test_a_kubernetes_secret_has_a_name_and_a_key() -> None:
    ref = SecretRef.model_validate({"from_kubernetes": {"name": "team.tracker", "key": "api_token"}})
    assert ref.model_dump(exclude_none=True) == {"from_kubernetes": {"name": "team.tracker", "key": "api_token"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"from_env": "A", "from_file": "/b"},
        {"from_project": "a", "from_env": "A"},
        {"from_project": ""},
        {"from_project": "-a"},
        {"from_project": "a/b"},
        {"from_project": "a" * 101},
        {"from_env": "A", "from_kubernetes": {"name": "a", "key": "b"}},
        {"from_kubernetes": {"name": "a"}},
        {"from_kubernetes": {"name": "../a", "key": "b"}},
        {"from_kubernetes": {"name": "..", "key": "b"}},
        {"from_kubernetes": {"name": "a", "key": "../b"}},
        {"from_kubernetes": {"name": "a", "key": ".."}},
        {"from_kubernetes": {"name": "a", "key": "."}},
        {"from_kubernetes": {"name": "A b", "key": "c"}},
    ],
)
def test_an_invalid_secret_reference_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SecretRef.model_validate(wrong)


def test_a_spec_names_the_secrets_of_its_project() -> None:
    secrets = {"A": {"from_project": "hf-token"}, "B": {"from_project": "HF_TOKEN.2"}, "C": {"from_env": "C"}}
    spec = parse_spec({"name": "t", "workload": {"kind": "script", "entrypoint": "/t.py"}, "secrets": secrets})
    assert spec.project_secrets == {"A": "hf-token", "B": "HF_TOKEN.2"}
