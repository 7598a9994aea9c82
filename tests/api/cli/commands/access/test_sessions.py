"""The link of `regroup console`, and the sessions that it begins."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from regroup.service.local.api_token import user_name
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a command opens in a browser."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: addresses.append(url) or True)
    return addresses


def test_console_opens_a_link_whose_session_is_listed_and_ended(cli: Cli, server: AppServer, opened: list[str]) -> None:
    link = cli("console").out.strip()
    assert opened == [link] and link.startswith(f"{server.url}/sign-in?code=")
    with httpx2.Client(trust_env=False) as browser:
        assert browser.get(link, headers={"User-Agent": "Firefox"}).status_code == 200
        head, row = cli("sessions", "list").out.splitlines()
        assert head.split()[:3] == ["SESSION", "IDENTITY", "ADDRESS"]
        session, subject, address, *_, agent = row.split()
        assert (subject, address, agent) == (user_name(), "127.0.0.1", "Firefox")
        assert browser.get(f"{server.url}/docs").status_code == 200
        assert cli("--dry-run", "sessions", "revoke", session).code == 0
        assert browser.get(f"{server.url}/docs").status_code == 200
        assert cli("sessions", "revoke", session).out == f"session {session} has ended\n"
        assert browser.get(f"{server.url}/docs").status_code == 401
    missing = cli("sessions", "revoke", session)
    assert missing.code == 4 and session in missing.err


def test_console_prints_the_link_only(cli: Cli, server: AppServer, opened: list[str]) -> None:
    shown = cli("console", "--no-browser")
    assert shown.out.startswith(f"{server.url}/sign-in?code=") and "it works once" in shown.err
    link = cli("console", "/console/jobs/x?filter=state:RUNNING", "--no-browser").out.strip()
    with httpx2.Client(trust_env=False) as browser:
        assert 'location.replace("/console/jobs/x?filter=state:RUNNING")' in browser.get(link).text
    assert cli("console", "--json").json["url"].startswith(server.url) and opened == []
