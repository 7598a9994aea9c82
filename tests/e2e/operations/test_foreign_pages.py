"""A page of another origin, in a real browser that is signed in, can neither read nor write through it.

The browser keeps the token that the user has typed, and adds it to requests by itself. Attackers have pages on another
port of this machine, on another site, and on a name that resolves to loopback after the page was loaded (DNS
rebinding). A server without checks is the control: each attack must succeed there.
"""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from regroup.api.client.client import Client
from regroup.api.web import access
from tests.support.machines.browser import running_browser
from tests.support.servers.app_server import AppServer
from tests.support.servers.unprotected_app import running_unprotected_app

pytestmark = pytest.mark.browser
MARKER = "a-job-that-only-its-project-may-see"
READ = "/v1/jobs"
CHANGE = "/v1/projects/vision"
NAMES = (f"{MARKER}-{number}" for number in itertools.count())
SPEC = {"workload": {"kind": "script", "entrypoint": "/train.py"}, "layout": {"dp": 1}}


@dataclass(frozen=True)
class Target:
    """A server that the pages attack."""

    url: str
    action: str
    """Path of a POST request without a body that changes something."""
    count_changes: Callable[[], int]

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def foreign_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a process that serves the attacker's page."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "index.html").write_text("<!doctype html><title>foreign</title><body></body>")
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    yield int(process.stdout.readline().split(" port ")[1].split()[0])
    process.kill()
    process.wait(20)
    process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    serving = AppServer(tmp_path_factory.mktemp("state"))
    yield serving
    serving.stop()


@pytest.fixture
def guarded(server: AppServer) -> Iterator[Target]:
    """The server, with a job that can be cancelled. Each change leaves an audit record."""
    with Client(server.url) as client:
        job = client.submit({**SPEC, "name": next(NAMES)})
        yield Target(server.url, f"/v1/jobs/{job.id}/cancel", lambda: len(list(client.audit())))
        client.cancel(job.id)


@pytest.fixture
def unprotected() -> Iterator[Target]:
    with running_unprotected_app(MARKER) as app:
        yield Target(app.url, "/v1/jobs/known/cancel", lambda: len(app.changes))


@pytest.fixture
def page(browser: Browser, guarded: Target, token_of_tests: str) -> Iterator[Page]:
    """A page of a browser whose user has signed in to the server."""
    context = browser.new_context()
    opened = context.new_page()
    address = f"127.0.0.1:{guarded.port}"
    opened.goto(f"http://me:{token_of_tests}@{address}{READ}")
    check_signed_in(opened, guarded)
    yield opened
    check_signed_in(opened, guarded)
    context.close()


def check_signed_in(page: Page, guarded: Target) -> None:
    """Check that the browser adds the token by itself. Without it, every attack would fail."""
    answer = page.goto(f"{guarded.url}{READ}")
    assert answer is not None and answer.status == 200 and MARKER in answer.text()


def fetch(page: Page, base: str, action: str) -> str:
    script = "url => fetch(url, {credentials: 'include'}).then(answer => answer.text(), error => String(error))"
    return page.evaluate(script, f"{base}{READ}")


def open_socket(page: Page, base: str, action: str) -> str:
    script = """url => new Promise(done => {
        const socket = new WebSocket(url)
        socket.onmessage = event => done(event.data)
        socket.onerror = () => done('refused')
    })"""
    return page.evaluate(script, f"{base}{READ}".replace("http:", "ws:"))


def show_in_a_frame(page: Page, base: str, action: str) -> str:
    script = """url => new Promise(done => {
        const frame = document.createElement('iframe')
        frame.onload = () => done()
        frame.src = url
        document.body.append(frame)
    })"""
    page.evaluate(script, f"{base}{READ}")
    return page.frames[-1].content()


def send_a_form(page: Page, base: str, action: str) -> str:
    script = """url => {
        const form = document.createElement('form')
        form.method = 'post'
        form.action = url
        document.body.append(form)
        form.submit()
    }"""
    with page.expect_navigation():
        page.evaluate(script, f"{base}{action}")
    return page.content()


def send_without_reading(page: Page, base: str, action: str) -> str:
    script = """url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include'})
        .then(answer => answer.text(), error => String(error))"""
    return page.evaluate(script, f"{base}{action}")


def send_json(page: Page, base: str, action: str) -> str:
    script = """url => fetch(url, {
        method: 'PUT', credentials: 'include', headers: {'Content-Type': 'application/json'}, body: '{"limit": 1}',
    }).then(answer => answer.text(), error => String(error))"""
    return page.evaluate(script, f"{base}{CHANGE}")


ATTACKS = (fetch, open_socket, show_in_a_frame, send_a_form, send_without_reading, send_json)
ORIGINS = ("http://127.0.0.1:{foreign}", "http://evil.test:{foreign}", "http://rebound.test:{target}")
"""Another port of this machine, another site, and a name of the attacker that now resolves to the server."""
attacks = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
origins = pytest.mark.parametrize("origin", ORIGINS, ids=["another port", "another site", "rebound name"])


def succeeds(page: Page, origin: str, attack: Callable[[Page, str, str], str], target: Target, foreign: int) -> bool:
    """Run an attack as the script of a page of `origin`; return True if it read or changed something."""
    home, before = origin.format(foreign=foreign, target=target.port), target.count_changes()
    page.goto(f"{home}/")
    assert page.evaluate("location.origin") == home
    shown = attack(page, home if "rebound" in origin else target.url, target.action)
    return MARKER in shown or target.count_changes() > before


@attacks
@origins
def test_a_foreign_page_neither_reads_nor_writes(
    page: Page, origin: str, attack: Callable[[Page, str, str], str], guarded: Target, foreign_port: int
) -> None:
    assert not succeeds(page, origin, attack, guarded, foreign_port)


@attacks
@origins
def test_each_attack_succeeds_against_a_server_without_checks(
    page: Page, origin: str, attack: Callable[[Page, str, str], str], unprotected: Target, foreign_port: int
) -> None:
    assert succeeds(page, origin, attack, unprotected, foreign_port)


def test_without_the_checks_a_form_of_another_site_would_cancel_a_job(
    page: Page, guarded: Target, foreign_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prove that the browser adds the token to the attacker's form, so that only the checks protect the server."""
    monkeypatch.setattr(access, "refusal_of", lambda *_, **__: None)
    assert succeeds(page, "http://evil.test:{foreign}", send_a_form, guarded, foreign_port)


def test_a_rebound_name_is_refused_even_with_the_token(page: Page, guarded: Target, token_of_tests: str) -> None:
    for path in (READ, "/livez", "/docs"):
        answer = page.goto(f"http://me:{token_of_tests}@rebound.test:{guarded.port}{path}")
        assert answer is not None and answer.status == 421 and MARKER not in answer.text()


def test_the_page_of_the_server_itself_works(page: Page, guarded: Target) -> None:
    page.goto(f"{guarded.url}/docs")
    before = guarded.count_changes()
    assert MARKER in fetch(page, guarded.url, guarded.action)
    assert '"limit":1' in send_json(page, guarded.url, guarded.action).replace(" ", "")
    send_a_form(page, guarded.url, guarded.action)
    assert guarded.count_changes() == before + 2
