"""The sign-in of a browser at a real server: the printed link, a restart, a program on another port, Chromium."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
from playwright.sync_api import Page

from tests.support.machines.browser import running_browser
from tests.support.servers.regroup_server import Server, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sign-in") / "state", nodes=1)
    server.start()
    yield server
    server.down()


def printed_links(server: Server) -> list[str]:
    return re.findall(r"^to sign a browser in, open (\S+) \(once, within 10 minutes\)$", server.log(), re.MULTILINE)


def test_the_printed_link_works_once_and_in_its_process_only(own: Server) -> None:
    (link,) = eventually(lambda: printed_links(own))
    assert link.startswith(f"{own.url}/sign-in?code=")
    with httpx2.Client(base_url=own.url, trust_env=False) as browser:
        shown = browser.get(link)
        assert shown.status_code == 200 and browser.get(link).status_code == 403
        proof = re.search(r'setItem\("[\w-]+", "([\w-]+)"\)', shown.text)
        assert proof is not None
        script = {"Regroup-Session-Proof": proof[1], "Sec-Fetch-Site": "same-origin"}
        assert browser.get("/v1/me", headers=script).json()["is_operator"] is True
        (cookie,) = browser.cookies.values()
    unused = own.client.session_link().path
    own.kill()
    own.start()
    name = f"regroup_{httpx2.URL(own.url).port}"
    with httpx2.Client(base_url=own.url, trust_env=False) as browser:
        assert browser.get(unused).status_code == 403, "a link belongs to one process"
        me = browser.get("/v1/me", headers={**script, "Cookie": f"{name}={cookie}"})
        assert me.status_code == 200, "a session is in the database"
    assert eventually(lambda: len(printed_links(own)) == 2)


class _OtherProgram(BaseHTTPRequestHandler):
    """A program of another user, which listens on another port of this host."""

    cookies: list[str] = []

    def do_GET(self) -> None:
        self.cookies.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def signed_in_page(server: Server) -> Iterator[Page]:
    """Open the link of the server in a new browser, and wait for the console that it leads to."""
    with running_browser() as browser:
        page = browser.new_page()
        page.goto(f"{server.url}{server.client.session_link().path}")
        page.wait_for_url(f"{server.url}/console/")
        page.get_by_role("navigation").first.wait_for()
        yield page


@pytest.mark.browser
def test_a_browser_uses_the_reference_and_its_cookie_is_of_no_use_elsewhere(own: Server) -> None:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _OtherProgram)
    serving = threading.Thread(target=listener.serve_forever)
    serving.start()
    try:
        with signed_in_page(own) as page:
            page.goto(f"{own.url}/docs")
            page.wait_for_selector('[id="operations-tag-jobs"]')
            page.goto(f"http://127.0.0.1:{listener.server_address[1]}/")
    finally:
        listener.shutdown()
        serving.join()
        listener.server_close()
    received = next(each for each in _OtherProgram.cookies if "regroup_" in each)  # browsers send it to every port
    with httpx2.Client(base_url=own.url, trust_env=False, headers={"Cookie": received}) as other:
        for path in ("/v1/me", "/v1/jobs", "/v1/sessions"):
            assert other.get(path).status_code == 401
        assert other.post("/v1/session-links", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 401
        assert other.get("/docs").status_code == 200, "the cookie is the right one"
