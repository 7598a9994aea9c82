"""`regroup login`, `logout` and `profiles`, with a server that has an issuer: a process of its own."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.client.client import Client
from regroup.api.client.connection.profiles import load_profiles, profiles_file
from tests.api.cli.conftest import Done
from tests.api.web.test_server_config import TOKEN, serving
from tests.support.servers.oidc_issuer import AUDIENCE, Issuer, running_issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture
def remote(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a server with the issuer, in a thread. Nothing but the profiles identifies the user."""
    issuer.behave()
    reported, up, stop = list[str](), threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(tmp_path / "state", oidc_issuer=issuer.url, oidc_audience=AUDIENCE) as (url, _):
            reported.append(url)
            up.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(20)
    for name in ("REGROUP_TOKEN", "REGROUP_TOKEN_FILE", "REGROUP_SERVER", "REGROUP_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REGROUP_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path / "none"))
    yield reported[0]
    stop.set()
    thread.join(20)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A browser that opens each page and follows where it is sent."""
    opened: list[str] = []

    def visit(url: str) -> None:
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=20) as answer:
            answer.read()

    def open_page(url: str) -> bool:
        opened.append(url)
        threading.Thread(target=visit, args=(url,), daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    return opened


def test_a_browser_signs_in_and_later_commands_use_the_server(remote: str, typed: Any, browser: list[str]) -> None:
    done = typed("login", "--server", remote, "--profile", "prod")
    assert done.code == 0 and done.out == f"signed in to {remote} as ana@example.com\n", done.err
    assert "code_challenge_method=S256" in browser[0]
    assert "ana@example.com" in typed("whoami").out
    assert oct(profiles_file().stat().st_mode)[-3:] == "600"
    listed = typed("profiles", "list")
    assert listed.out.splitlines()[1].split() == ["*", "prod", remote, "identity", "provider"]
    assert load_profiles().named("prod").token not in listed.out
    with Client(remote) as client:
        assert client.me().subject == "ana@example.com"
    assert typed("logout").out == "removed the profile prod\n"
    refused = typed("whoami", "--server", remote)
    assert refused.code != 0 and "this server needs a token" in refused.err


def test_a_code_signs_in_without_a_browser(remote: str, typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("regroup.api.client.connection.sign_in.sign_in_with_device.__defaults__", (waits.append,))
    done = typed("login", "--server", remote, "--device")
    assert done.code == 0 and "enter the code ABCD-EFGH" in done.err
    assert waits == [1.0, 1.0, 6.0], "the issuer asked to poll more slowly"


@pytest.mark.parametrize(
    ("behavior", "message"),
    [({"refuse": "access_denied"}, "the issuer refused: access_denied"), ({"iss": "https://other"}, "another issuer")],
)
def test_a_refused_sign_in_stores_nothing(
    remote: str, typed: Any, browser: list[str], issuer: Issuer, behavior: dict[str, str], message: str
) -> None:
    issuer.behave(**behavior)
    done = typed("login", "--server", remote)
    assert done.code != 0 and message in done.err and load_profiles().all == {}


def test_an_answer_with_another_state_is_ignored(
    remote: str, typed: Any, browser: list[str], issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.behave(state="forged")
    monkeypatch.setattr("regroup.api.client.connection.sign_in.sign_in_with_browser.__defaults__", (1.0,))
    done = typed("login", "--server", remote)
    assert done.code != 0 and "the time of 1 s for the sign-in has passed" in done.err and load_profiles().all == {}


def test_a_token_of_the_server_is_read_from_standard_input(
    remote: str, typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, code in ((f"{TOKEN}\n", 0), ("rg_wrong_token\n", 1), ("", 1)):
        given = tmp_path / "token.txt"
        given.write_text(text)
        with given.open() as file:
            monkeypatch.setattr("sys.stdin", file)
            done = typed("login", "--server", remote, "--with-token", "--profile", f"p{code}", "--json")
        assert bool(done.code) is bool(code), done.err
    assert list(load_profiles().all) == ["p0"]
    assert json.loads(typed("profiles", "list", "--json").out)["profiles"]["p0"]["sign_in"] == "token"


def test_a_token_is_renewed_in_time_and_by_one_process_only(
    remote: str, typed: Any, browser: list[str], issuer: Issuer
) -> None:
    issuer.behave(lives_s=20)
    assert typed("login", "--server", remote, "--profile", "prod").code == 0
    first = load_profiles().named("prod").token
    issuer.behave()
    answers: list[str] = []

    def request_name() -> None:
        with Client(remote) as client:
            answers.append(client.me().subject)

    threads = [threading.Thread(target=request_name) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == ["ana@example.com"] * 4, "each refresh token is valid once"
    renewed = load_profiles().named("prod")
    assert renewed.token != first and renewed.renewal is not None
    assert renewed.renewal.expires_at > time.time() + 3000


def test_commands_use_the_chosen_profile_unless_another_is_named(
    remote: str, typed: Any, browser: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("login", "--server", remote, "--profile", "prod")
    assert typed("profiles", "use", "--local").out == "commands use the server of this machine\n"
    assert typed("whoami").code != 0
    monkeypatch.setenv("REGROUP_PROFILE", "prod")
    assert typed("whoami").code == 0
    monkeypatch.setenv("REGROUP_PROFILE", "stage")
    missing = typed("whoami")
    assert missing.code != 0 and "no profile 'stage'; profiles: prod" in missing.err
    monkeypatch.delenv("REGROUP_PROFILE")
    assert typed("profiles", "use", "prod").out == f"commands use {remote}\n"
    assert typed("whoami").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("login",), "--server: name the server"),
        (("login", "--server", "{remote}", "--with-token", "--profile", "a b"), "must have 1 to 64 letters"),
        (("logout",), "commands use the server of this machine"),
        (("profiles", "use"), "name a profile, or give --local"),
        (("profiles", "use", "prod"), "no profile 'prod'; profiles: none"),
    ],
)
def test_wrong_commands_report_missing_values(
    remote: str, typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    given = tmp_path / "token.txt"
    given.write_text(f"{TOKEN}\n")
    with given.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        done = typed(*(word.format(remote=remote) for word in words))
    assert done.code != 0 and message in done.err


def test_a_damaged_file_of_profiles_is_named(remote: str, typed: Any) -> None:
    profiles_file().parent.mkdir(parents=True)
    for text in ("{", "[]", '{"version": 2}', '{"version": 1, "profiles": {"a": {}}}'):
        profiles_file().write_text(text)
        done = typed("whoami")
        assert done.code != 0 and str(profiles_file()) in done.err and "Traceback" not in done.err
