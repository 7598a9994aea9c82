"""Claims of JWTs, and the roles of groups: accepted and refused tokens."""

from typing import Any

import pytest

from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.policy.access.external import (
    LEEWAY_S,
    ClaimRules,
    ExternalSubject,
    identity_of_subject,
    read_claims,
)

NOW = 1_000_000.0
RULES = ClaimRules("https://issuer", "regroup", operator_groups=frozenset({"platform"}))
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer", "aud": "regroup", "exp": NOW + 60, "email": "ana@example.com", "groups": ["vision"],
}  # fmt: skip


def test_a_subject_has_its_name_and_its_groups() -> None:
    subject = read_claims(CLAIMS, RULES, NOW)
    assert subject == ExternalSubject("ana@example.com", frozenset({"vision"}))
    assert subject.members == ["ana@example.com", "group:vision"]
    assert read_claims({**CLAIMS, "groups": ["platform", 3]}, RULES, NOW).is_operator


@pytest.mark.parametrize(
    "accepted",
    [
        {"aud": ["other", "regroup"]},
        {"exp": NOW - LEEWAY_S + 1},
        {"nbf": NOW + LEEWAY_S - 1},
        {"email_verified": True},
        {"groups": None},
        {"groups": "vision"},
    ],
)
def test_an_unusual_token_is_accepted(accepted: dict[str, Any]) -> None:
    assert read_claims({**CLAIMS, **accepted}, RULES, NOW).name == "ana@example.com"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"iss": "https://other"}, "accepts 'https://issuer'"),
        ({"iss": None}, "accepts 'https://issuer'"),
        ({"aud": "other"}, "for audience 'other'"),
        ({"aud": None}, "for audience None"),
        ({"aud": []}, "for audience"),
        ({"exp": NOW - LEEWAY_S}, "has expired"),
        ({"exp": None}, "must be numbers"),
        ({"exp": "tomorrow"}, "must be numbers"),
        ({"exp": True}, "must be numbers"),
        ({"nbf": NOW + LEEWAY_S + 1}, "not valid yet"),
        ({"email": None}, "no usable claim 'email'"),
        ({"email": ["a"]}, "no usable claim"),
        ({"email": ""}, "no usable claim"),
        ({"email": "x" * 201}, "no usable claim"),
        ({"email": "group:admins"}, "no usable claim"),
        ({"email_verified": False}, "has not verified"),
        ({"email_verified": "yes"}, "has not verified"),
    ],
)
def test_another_token_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(UnauthorizedError, match=text):
        read_claims({**CLAIMS, **wrong}, RULES, NOW)


def test_the_highest_role_of_name_and_groups_counts_with_all_permissions() -> None:
    memberships = [
        ("vision", Membership(Role.VIEWER, frozenset({"exec"}))),
        ("vision", Membership(Role.EDITOR, frozenset({"secrets:hub"}))),
        ("speech", Membership(Role.VIEWER)),
    ]
    identity = identity_of_subject(ExternalSubject("ana"), memberships)
    assert identity.memberships == {
        "vision": Membership(Role.EDITOR, frozenset({"exec", "secrets:hub"})),
        "speech": Membership(Role.VIEWER),
    }
    assert (identity.kind, identity.is_operator, identity.everywhere) == (IdentityKind.USER, False, None)


@pytest.mark.parametrize(("by_group", "by_row"), [(True, False), (False, True)])
def test_an_operator_is_admin_everywhere(by_group: bool, by_row: bool) -> None:
    identity = identity_of_subject(ExternalSubject("ana", is_operator=by_group), [], is_operator=by_row)
    assert identity.is_operator and identity.everywhere is Role.ADMIN
