"""References to secrets in a spec."""

from typing import Any

import pytest
from pydantic import ValidationError

from regroup.service.spec.secrets import SecretRef


def test_a_kubernetes_secret_has_a_name_and_a_key() -> None:
    ref = SecretRef.model_validate({"from_kubernetes": {"name": "team.tracker", "key": "api_token"}})
    assert ref.model_dump(exclude_none=True) == {"from_kubernetes": {"name": "team.tracker", "key": "api_token"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"from_env": "A", "from_file": "/b"},
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
