"""The keyring: a value is only for its owner, any change of its stored text is refused, and all keys decrypt."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regroup.service.domain.credentials.keyring import (
    Key,
    Keyring,
    KeyringError,
    Owner,
    is_sealed,
    key_id_of,
    no_keys,
    read_stored,
    require_keys,
    sealed_prefix,
    stored_form,
)

FIRST, SECOND = Key.of(b"1" * 32), Key.of(b"2" * 32)
RING = Keyring((FIRST, SECOND), "the key file")
OWNER = Owner("secret", "vision", "hf-token", 3)
SEALED = RING.seal("hunter2-4f1d09c6", OWNER)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(texts, texts, texts, st.integers(0, 2**53))
@example("", "", "", 0)
def test_a_value_is_read_by_its_owner_and_by_no_other(value: str, project: str, name: str, version: int) -> None:
    owner = Owner("secret", project, name, version)
    sealed = RING.seal(value, owner)
    assert RING.open(sealed, owner) == value
    others = [
        Owner("hook", project, name, version), Owner("secret", project + "x", name, version),
        Owner("secret", project, name + "x", version), Owner("secret", project, name, version + 1),
        Owner("secret", name + "x", project, version),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(KeyringError, match="was changed, or belongs to another secret"):
            RING.open(sealed, other)


@given(st.data())
def test_a_stored_text_with_any_other_character_is_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SEALED) - 1))
    other = data.draw(st.sampled_from("abcXYZ019-_=.").filter(lambda each: each != SEALED[at]))
    changed = SEALED[:at] + other + SEALED[at + 1 :]
    with pytest.raises(KeyringError) as refused:
        RING.open(changed, OWNER)
    assert "hunter2" not in str(refused.value) and refused.value.__context__ is None


@pytest.mark.parametrize("stored", ["", "v1", "v1.", f"v1.{FIRST.id}", f"v1.{FIRST.id}.", f"v1.{FIRST.id}.é", "plain"])
def test_a_damaged_text_is_refused(stored: str) -> None:
    with pytest.raises(KeyringError):
        RING.open(stored, OWNER)


def test_the_first_key_encrypts_and_all_keys_decrypt() -> None:
    before = Keyring((SECOND,), "the key file").seal("value", OWNER)
    assert RING.open(before, OWNER) == "value"
    sealed = RING.seal("value", OWNER)
    assert key_id_of(sealed) == FIRST.id and sealed.startswith(sealed_prefix(FIRST.id))
    with pytest.raises(KeyringError, match=f"with the key {FIRST.id}, which the server does not have"):
        Keyring((SECOND,), "the key file").open(sealed, OWNER)


def test_two_encryptions_of_one_value_differ() -> None:
    assert RING.seal("value", OWNER) != RING.seal("value", OWNER)


def test_no_representation_has_key_or_value() -> None:
    assert "111" not in repr(RING) and "222" not in repr(RING)
    assert "value" not in RING.seal("value", OWNER)


def test_a_key_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Key.of(b"short")
    assert len({FIRST.id, SECOND.id}) == 2 and len(FIRST.id) == 16


def test_a_server_without_a_key_stores_plain_hooks_and_refuses_secrets() -> None:
    assert stored_form(no_keys, "whsec_x", OWNER) == "whsec_x"
    assert read_stored(no_keys, "whsec_x", OWNER) == read_stored(lambda: RING, "whsec_x", OWNER) == "whsec_x"
    sealed = stored_form(lambda: RING, "whsec_x", OWNER)
    assert is_sealed(sealed) and read_stored(lambda: RING, sealed, OWNER) == "whsec_x"
    for refused in (lambda: read_stored(no_keys, sealed, OWNER), lambda: require_keys(no_keys)):
        with pytest.raises(KeyringError, match="REGROUP_SECRETS_KEY_FILE"):
            refused()
