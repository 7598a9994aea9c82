"""The reference of the API as a page: everything that it loads comes from this server."""

import re
from typing import Any

import pytest


async def test_the_page_loads_only_files_of_this_server(live: Any) -> None:
    page = await live.http.get("/docs")
    assert page.status_code == 200 and page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text) + re.findall(r"url: \'([^\']+)\'", page.text)
    kinds = {"js": "text/javascript", "css": "text/css", "png": "image/png", "json": "application/json"}
    assert len(addresses) == len(kinds)
    for address in addresses:
        assert address.startswith("/"), address
        part = await live.http.get(address)
        assert part.status_code == 200 and part.content
        assert part.headers["Content-Type"].partition(";")[0] == kinds[address.rpartition(".")[2]]


@pytest.mark.parametrize("path", ["/docs", "/docs/swagger-ui.css"])
async def test_the_page_needs_an_identity(live: Any, path: str) -> None:
    refused = await live.http.get(path, headers={"Authorization": "Bearer wrong"})
    assert refused.status_code == 401
    assert any(value.startswith("Basic") for value in refused.headers.get_list("WWW-Authenticate"))


@pytest.mark.parametrize("name", ["redoc.standalone.js", "..%2f__init__.py", "index.html"])
async def test_other_files_are_not_sent(live: Any, name: str) -> None:
    assert (await live.http.get(f"/docs/{name}")).status_code in (404, 422)
