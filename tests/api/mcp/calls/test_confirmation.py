"""Values that confirm a change."""

from typing import Any

import pytest

from regroup.api.mcp.calls.confirmation import MAX_CHARACTERS, VALID_S, Confirmations, digest_of
from regroup.service.domain.errors import ConflictError

REQUEST: dict[str, Any] = {"tool": "cancel_job", "arguments": {"job": "gpt"}, "caller": "ana"}


def test_a_value_is_accepted_for_its_request_and_carries_the_state() -> None:
    confirmations = Confirmations()
    value, made = confirmations.issue(REQUEST, '"7.3"', now_s=1000.0)
    assert len(value) < MAX_CHARACTERS
    assert confirmations.check(value, REQUEST, now_s=1000.0 + VALID_S) == made
    assert (made.state, made.expires_s) == ('"7.3"', 1000 + VALID_S)
    assert confirmations.issue(REQUEST, '"7.3"', now_s=1000.0)[0] != value, "each preview has a key of its own"


@pytest.mark.parametrize(
    "other",
    [
        {**REQUEST, "tool": "suspend_job"},
        {**REQUEST, "arguments": {"job": "gpt-2"}},
        {**REQUEST, "caller": "ben"},
    ],
)
def test_a_value_is_refused_for_another_request(other: dict[str, Any]) -> None:
    confirmations = Confirmations()
    value, _ = confirmations.issue(REQUEST, "")
    with pytest.raises(ConflictError, match="does not belong to this request"):
        confirmations.check(value, other)


def test_a_value_is_refused_after_its_time_and_by_another_server() -> None:
    confirmations = Confirmations()
    value, _ = confirmations.issue(REQUEST, "", now_s=1000.0)
    with pytest.raises(ConflictError, match="has expired: it is accepted for 15 minutes"):
        confirmations.check(value, REQUEST, now_s=1001.0 + VALID_S)
    with pytest.raises(ConflictError, match="has restarted"):
        Confirmations().check(value, REQUEST, now_s=1000.0)


@pytest.mark.parametrize("value", ["", ".", "a.b", "ü.é", "x" * 400, "W10.", "\ud800.x"])
def test_a_value_that_this_server_did_not_make_is_refused(value: str) -> None:
    with pytest.raises(ConflictError, match="does not belong"):
        Confirmations().check(value, REQUEST)


def test_a_changed_content_breaks_the_signature() -> None:
    confirmations = Confirmations()
    value, _ = confirmations.issue(REQUEST, "")
    content, _, signature = value.partition(".")
    for at in range(len(content)):
        changed = content[:at] + ("A" if content[at] != "A" else "B") + content[at + 1 :]
        with pytest.raises(ConflictError):
            confirmations.check(f"{changed}.{signature}", REQUEST)


def test_the_digest_of_several_states_depends_on_names_and_states_only() -> None:
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"}) != digest_of({"a": "2", "b": "1"})
