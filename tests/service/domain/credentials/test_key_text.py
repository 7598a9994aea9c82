"""Key files: comments, both encodings, and refusals without a part of a key."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.credentials.key_text import parse_keyring
from regroup.service.domain.credentials.keyring import MAX_KEYS, Key, KeyringError


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=MAX_KEYS, unique=True), st.booleans())
def test_keys_are_read_in_their_order(materials: list[bytes], as_hex: bool) -> None:
    lines = [each.hex() if as_hex else base64.b64encode(each).decode() for each in materials]
    text = "# newest first\n\n" + "\r\n".join(f"  {line} " for line in lines) + "\n"
    assert [key.material for key in parse_keyring(text, "f").keys] == materials


def test_base64_is_read_in_all_its_forms() -> None:
    material = bytes(range(224, 256))
    forms = [base64.b64encode(material), base64.urlsafe_b64encode(material), base64.b64encode(material).rstrip(b"=")]
    assert [parse_keyring(form.decode(), "f").current for form in forms] == [Key.of(material)] * 3
    repeated = "\n".join(form.decode() for form in forms)
    assert len(parse_keyring(repeated, "f").keys) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f contains no key"),
        ("# only a comment\n", "f contains no key"),
        ("hunter2", "line 1 of f is not a key"),
        (f"{'ab' * 32}\n{'cd' * 31}", "line 2 of f is not a key"),
        (f"{'ab' * 33}", "line 1 of f is not a key"),
        ("\n".join(f"{number:064x}" for number in range(MAX_KEYS + 1)), f"contains {MAX_KEYS + 1} keys"),
    ],
)
def test_a_text_that_is_not_a_keyring_is_refused_without_its_content(text: str, problem: str) -> None:
    with pytest.raises(KeyringError, match=problem) as refused:
        parse_keyring(text, "f")
    assert "hunter2" not in str(refused.value) and "cdcd" not in str(refused.value)


@given(st.text(max_size=200))
def test_any_other_text_is_refused_with_a_reason(text: str) -> None:
    try:
        assert parse_keyring(text, "f").keys
    except KeyringError as error:
        assert "f" in str(error)
