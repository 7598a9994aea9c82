"""The key of stored secrets: created once, private, read again after a change, and never an end of the server."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from regroup.service.domain.credentials.keyring import Key, KeyringError
from regroup.service.local.secrets_key import KeySource
from regroup.service.settings import Settings

ONE, OTHER = base64.b64encode(b"1" * 32).decode(), base64.b64encode(b"2" * 32).decode()


def settings(folder: Path, **fields: Any) -> Settings:
    return Settings(state_dir=folder, **fields)


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_server_on_one_machine_creates_a_private_key_once(tmp_path: Path) -> None:
    source = KeySource(settings(tmp_path))
    source.prepare()
    path = tmp_path / "secrets.key"
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and text.startswith("# ")
    first = source()
    again = KeySource(settings(tmp_path))
    again.prepare()
    assert path.read_text() == text and again() == first and first is not None and len(first.keys) == 1


def test_servers_of_one_postgresql_get_no_key_of_their_own(tmp_path: Path) -> None:
    source = KeySource(settings(tmp_path, database_url="postgresql://db/regroup"))
    source.prepare()
    assert source() is None and list(tmp_path.iterdir()) == []


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    source = KeySource(settings(tmp_path, secrets_key_file=key_file(tmp_path, ONE)))
    source.prepare()
    assert not (tmp_path / "secrets.key").exists()
    first = source()
    assert first is not None and first.current == Key.of(b"1" * 32) and source() is first
    key_file(tmp_path, f"{OTHER}\n{ONE}\n")
    assert [key.material for key in source().keys] == [b"2" * 32, b"1" * 32]  # type: ignore[union-attr]


def test_the_variable_has_keys_separated_by_commas(tmp_path: Path) -> None:
    found = KeySource(settings(tmp_path, secrets_key=f"{OTHER},{ONE}"))()
    assert found is not None and [key.material for key in found.keys] == [b"2" * 32, b"1" * 32]
    with pytest.raises(KeyringError, match="line 2 of REGROUP_SECRETS_KEY is not a key") as refused:
        KeySource(settings(tmp_path, secrets_key=f"{ONE},hunter2"))()
    assert "hunter2" not in str(refused.value)


def test_a_missing_file_is_an_error_of_the_operation_and_it_may_return(tmp_path: Path) -> None:
    source = KeySource(settings(tmp_path, secrets_key_file=tmp_path / "keys"))
    source.prepare()
    with pytest.raises(KeyringError, match=r"keys cannot be read \(No such file or directory\)"):
        source()
    key_file(tmp_path, ONE)
    assert source() is not None
    (tmp_path / "keys").unlink()
    with pytest.raises(KeyringError, match="cannot be read"):
        source()


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o606])
def test_a_file_that_other_users_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(KeyringError, match="is not private: type `chmod 600"):
        KeySource(settings(tmp_path, secrets_key_file=key_file(tmp_path, ONE, mode)))()


def test_a_file_of_the_group_is_accepted_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    assert KeySource(settings(tmp_path, secrets_key_file=key_file(tmp_path, ONE, 0o440)))() is not None
    source = KeySource(settings(tmp_path))
    source.prepare()
    (tmp_path / "secrets.key").chmod(0o640)
    with pytest.raises(KeyringError, match="is not private"):
        source()


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path, "")
    path.write_bytes(os.urandom(40) + b"\xff")
    with pytest.raises(KeyringError, match="is not ASCII text"):
        KeySource(settings(tmp_path, secrets_key_file=path))()


def test_a_file_and_a_variable_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="give the file or the keys") as refused:
        settings(tmp_path, secrets_key=ONE, secrets_key_file=tmp_path / "keys")
    assert ONE not in repr(settings(tmp_path, secrets_key=ONE)) and "keys" in str(refused.value)
