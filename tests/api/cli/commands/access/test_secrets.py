"""The commands of `regroup secret`: values come from standard input or a file, and no output has them."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.credentials.keyring import Keyring
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]
VALUE = "hunter2-4f1d09c6"


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def stored(server: AppServer, name: str, project: str = "vision") -> str:
    """Return the value of a secret, decrypted with the server's key."""
    from regroup.service.local.secrets_key import KeySource

    row = server.do(server.store.secrets.secret(project, name))
    keyring: Keyring | None = KeySource(server._settings)()
    assert keyring is not None
    return keyring.open(row.sealed, row.owner)


@pytest.mark.parametrize("ends", [b"", b"\n", b"\r\n", b"\n\n"])
def test_a_value_is_read_from_standard_input(
    cli: Cli, server: AppServer, monkeypatch: pytest.MonkeyPatch, ends: bytes
) -> None:
    pipe(monkeypatch, VALUE.encode() + ends)
    done = cli("secret", "set", "hf-token", "--project", "vision")
    assert done.code == 0, done.err
    assert re.fullmatch(r"hf-token of project vision: version \d+\n", done.out)
    assert stored(server, "hf-token") == VALUE and VALUE not in done.out + done.err


def test_a_value_is_read_from_a_file_with_its_lines(cli: Cli, server: AppServer, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(f"BEGIN\n{VALUE}\nEND\n")
    done = cli("secret", "set", "pem", "--project", "vision", "--from-file", tmp_path / "key.pem", "--json")
    assert done.json["name"] == "pem" and VALUE not in done.out
    assert stored(server, "pem") == f"BEGIN\n{VALUE}\nEND"


def test_the_list_has_versions_and_authors_but_no_value(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        pipe(monkeypatch, VALUE.encode())
        assert cli("secret", "set", "listed", "--project", "lists").code == 0
    listed = cli("secret", "list", "--project", "lists")
    heading, row = listed.out.splitlines()
    assert heading.split("  ")[0] == "SECRET" and row.split()[:2] == ["listed", "2"] and row.split()[-1] == "-"
    assert VALUE not in listed.out + cli("secret", "list", "--project", "lists", "--json").out
    assert cli("secret", "delete", "listed", "--project", "lists").out == "listed deleted\n"
    gone = cli("secret", "delete", "listed", "--project", "lists")
    assert gone.code != 0 and "has no secret 'listed'" in gone.err


@pytest.mark.parametrize("data", [b"", b"abc\n", b"\xff\xfe\xfd hunter2"])
def test_a_wrong_value_is_refused_without_it(cli: Cli, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    pipe(monkeypatch, data)
    done = cli("secret", "set", "hf-token", "--project", "vision")
    assert done.code != 0 and ("at least 4 characters" in done.err or "must be UTF-8" in done.err), done.err
    assert "hunter2" not in done.err + done.out


def test_a_value_is_not_an_argument(cli: Cli) -> None:
    done = cli("secret", "set", "hf-token", VALUE)
    assert done.code == 2


def test_a_missing_file_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("secret", "set", "hf-token", "--from-file", tmp_path / "absent")
    assert done.code != 0 and "absent" in done.err and "cannot be read" in done.err


def test_a_dry_run_sets_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, VALUE.encode())
    done = cli("--dry-run", "secret", "set", "tried", "--project", "dry")
    assert done.code == 0 and "nothing was changed" in done.err
    assert cli("secret", "list", "--project", "dry", "--json").json == []


def test_the_key_is_rotated_and_a_lost_one_is_reported(
    cli: Cli, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, VALUE.encode())
    cli("secret", "set", "hf-token", "--project", "vision")
    file = server._settings.state_dir / "secrets.key"
    former = file.read_text()
    file.write_text("ab" * 32 + "\n" + former)
    done = cli("secret", "rotate-key")
    assert done.code == 0 and re.search(r"key [0-9a-f]{16}: encrypted [1-9]\d* values?\n", done.out), done.err
    file.write_text("cd" * 32 + "\n")
    lost = cli("secret", "rotate-key")
    assert lost.code == 1 and "the server does not have the key of" in lost.out
    file.write_text("cd" * 32 + "\n" + "ab" * 32 + "\n" + former)
    assert cli("secret", "rotate-key").code == 0 and stored(server, "hf-token") == VALUE
