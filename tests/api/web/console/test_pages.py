"""The console on the real server: its page and files, their headers, and who may request them."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from regroup.api.web.access import SenderHeaders, accepts_links, is_open, refusal_of
from regroup.api.web.console.files import ConsoleFiles
from tests.api.web.routes.access.test_sessions import browser_at, link_of
from tests.support.servers.live_server import QuietServer

PAGE = '<!doctype html><base href="/console/" /><title>regroup</title><script type="module" src="./assets/a-1.js">'
FOLLOWED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture
def built(live: Any, tmp_path: Path) -> Path:
    """A small build that the server serves."""
    folder = tmp_path / "built"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "a-1.js").write_text("let answer = 42;\n" * 200)
    live.app.state.console = ConsoleFiles(folder)
    return folder


@pytest.fixture
async def http(live: Any, built: Path) -> Any:
    """A browser that is not signed in."""
    async with httpx2.AsyncClient(base_url=live.url, trust_env=False) as client:
        yield client


async def test_the_first_address_leads_to_the_console(http: httpx2.AsyncClient) -> None:
    for path in ("/", "/console"):
        found = await http.get(path)
        assert (found.status_code, found.headers["Location"]) == (307, "/console/")


@pytest.mark.parametrize(
    "path", ["/console/", "/console/jobs", "/console/jobs/x/story?generation=2", "/console/index.html"]
)
async def test_each_path_without_a_file_is_the_page(http: httpx2.AsyncClient, path: str) -> None:
    found = await http.get(path)
    assert (found.status_code, found.text) == (200, PAGE)
    assert found.headers["Content-Type"] == "text/html; charset=utf-8" and found.headers["Cache-Control"] == "no-cache"
    again = await http.get(path, headers={"If-None-Match": found.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Content-Security-Policy"] == found.headers["Content-Security-Policy"]


async def test_files_are_compressed_and_kept_by_browsers(http: httpx2.AsyncClient) -> None:
    script = await http.get("/console/assets/a-1.js")
    assert (script.headers["Content-Encoding"], script.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert int(script.headers["Content-Length"]) < 200 < len(script.content)
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert script.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for accepted in ("identity", "gzip;q=0, br", ""):
        plain = await http.get("/console/assets/a-1.js", headers={"Accept-Encoding": accepted})
        assert "Content-Encoding" not in plain.headers and plain.content == script.content
    icon = await http.get("/console/favicon.svg")
    assert (icon.headers["Content-Type"], icon.headers["Cache-Control"]) == ("image/svg+xml", "no-cache")
    assert (await http.head("/console/favicon.svg")).content == b""


async def test_a_missing_asset_is_not_found(http: httpx2.AsyncClient) -> None:
    found = await http.get("/console/assets/b-2.js")
    assert found.status_code == 404 and "Load the page again" in found.text and "immutable" not in str(found.headers)


@pytest.mark.parametrize(
    "path", ["/console/../v1/jobs", "/console/%2e%2e/v1/jobs", "/console/..%2f..%2fpyproject.toml"]
)
async def test_no_path_leads_out_of_the_folder(live: Any, built: Path, path: str) -> None:
    (built.parent / "pyproject.toml").write_text("secret")
    address = httpx2.URL(live.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 200") and answer.endswith(PAGE)


@pytest.mark.parametrize("path", ["/console/", "/console/assets/a-1.js", "/console/assets/none.js"])
async def test_the_headers_restrict_the_page(http: httpx2.AsyncClient, path: str) -> None:
    headers = (await http.get(path)).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'self'", "img-src": "'self' data:", "object-src": "'none'", "base-uri": "'self'",
        "form-action": "'self'", "frame-ancestors": "'none'",
    }  # fmt: skip
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "same-origin")


async def test_a_server_without_a_build_names_the_command(live: Any, http: httpx2.AsyncClient, tmp_path: Path) -> None:
    live.app.state.console = ConsoleFiles(tmp_path / "none")
    found = await http.get("/console/jobs")
    assert found.status_code == 404 and found.headers["Content-Type"].startswith("text/plain")
    assert "`make setup`" in found.text


async def test_below_another_path_the_page_and_the_redirect_name_it(live: Any, built: Path) -> None:
    server = QuietServer(uvicorn.Config(live.app, port=0, log_level="error", lifespan="off", root_path="/train"))
    serving = asyncio.create_task(server.serve())
    await server.up.wait()
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        assert (await http.get("/")).headers["Location"] == "/train/console/"
        assert re.findall('base href="([^"]+)"', (await http.get("/console/jobs")).text) == ["/train/console/"]
        link = await link_of(live.http)
        assert 'location.replace("/train/console/jobs/x")' in (await http.get(f"{link}&page=jobs/x")).text
    server.should_exit = True
    await serving


# ------------------------------------------------------------ access


async def test_the_console_needs_no_token_but_a_host_of_the_server(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/console/", headers={"Authorization": "Bearer wrong"})).status_code == 200
    refused = await http.get("/console/", headers={"Host": "evil.example"})
    assert (refused.status_code, refused.json()["code"]) == (421, "host_not_allowed")
    assert (await http.post("/console/")).status_code == 405


async def test_a_person_may_follow_a_link_of_another_site_to_the_console_only(
    live: Any, http: httpx2.AsyncClient
) -> None:
    for path in ("/", "/console", "/console/jobs/x"):
        assert (await http.get(path, headers=FOLLOWED)).status_code in (200, 307)
    token = {"Authorization": f"Bearer {live.token}"}
    for path in ("/v1/jobs", "/docs", "/sign-in", "/livez", "/openapi.json", "/consolex", "/v1/console/"):
        refused = await http.get(path, headers={**FOLLOWED, **token})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
    assert (await http.post("/console/", headers=FOLLOWED)).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Mode": "no-cors"}, {"Sec-Fetch-Mode": "cors"}, {"Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Dest": "script"}, {"Sec-Fetch-Dest": "image"}, {"Origin": "https://evil.example"},
    ],
)  # fmt: skip
async def test_other_sites_use_the_console_in_no_other_way(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    refused = await http.get("/console/", headers={**FOLLOWED, **headers})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_a_followed_link_has_each_header_once() -> None:
    values: dict[str, Any] = {"hosts": ["localhost"], "fetch_sites": ["cross-site"], "fetch_modes": ["navigate"]}
    once = SenderHeaders(**values, fetch_destinations=["document"])
    twice = SenderHeaders(**values, fetch_destinations=["document", "iframe"])
    assert refusal_of(once, accepts_links=True) is None and refusal_of(once) is not None
    assert refusal_of(twice, accepts_links=True) is not None
    assert refusal_of(SenderHeaders(**values), accepts_links=True) is not None


def test_only_paths_of_the_console_are_open_to_links() -> None:
    for path in ("/", "/console", "/console/", "/console/assets/x.js"):
        assert is_open(path) and accepts_links("GET", path) and not accepts_links("POST", path)
    for path in ("/consolex", "/v1/jobs", "//console/", "/Console/", "/sign-in", "/docs"):
        assert not accepts_links("GET", path)


# ------------------------------------------------------------ sign-in


async def test_a_link_opens_the_page_that_it_names(live: Any) -> None:
    async with browser_at(live.url) as browser:
        shown = await browser.sign_in(f"{await link_of(live.http)}&page=jobs%2Fx%2Fstory%3Fgeneration%3D2")
        assert shown.status_code == 200 and 'location.replace("/console/jobs/x/story?generation=2")' in shown.text


@pytest.mark.parametrize(
    "page", ["https://evil.example/", "//evil.example", "../v1/jobs", "%2e%2e/docs", '");alert(1)//']
)
async def test_a_link_to_another_place_begins_no_session(live: Any, page: str) -> None:
    link = await link_of(live.http)
    async with browser_at(live.url) as browser:
        refused = await browser.http.get("/sign-in", params={"code": link.partition("=")[2], "page": page})
        assert refused.status_code == 400 and "no page of the console" in refused.text and not browser.cookies
        assert (await browser.sign_in(link)).status_code == 200, "the code was not used"
