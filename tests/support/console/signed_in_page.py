"""The console in Chromium, signed in to a live server."""

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.console.hands import Hands
from tests.support.machines.browser import chromium_path

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

ROOT = Path(__file__).parents[3]
WAIT_MS = 20_000
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass
class Console:
    """A browser that is signed in to a server, with one page."""

    url: str
    """Address of the server."""
    context: "BrowserContext"
    page: "Page"
    faults: list[str] = field(default_factory=list[str])
    """Errors that the scripts of the page raised or printed."""

    async def open(self, path: str = "") -> Hands:
        """Open a page of the console, and wait for its title; return hands that count the interactions from now on."""
        await self.page.goto(f"{self.url}/console/{path}")
        await self.page.locator("h1").first.wait_for()
        return Hands(self.page)

    async def violations(self) -> list[str]:
        """Return what axe finds against WCAG 2.2, levels A and AA, on the page as it is shown."""
        # Evaluated, not added as an element: the policy of the page allows only scripts of the server.
        await self.page.evaluate(_axe())
        found: Any = await self.page.evaluate("tags => axe.run({ runOnly: tags })", _TAGS)
        return [
            f"{rule['id']}: {node['html']}: {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]


@functools.cache
def _axe() -> str:
    return (ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def sign_in(context: "BrowserContext", url: str, token: str) -> None:
    """Sign a browser in with a link, as `regroup console` does."""
    answer = await context.request.post(f"{url}/v1/session-links", headers={"Authorization": f"Bearer {token}"})
    assert answer.ok, await answer.text()
    page = await context.new_page()
    await page.goto(url + (await answer.json())["path"])
    await page.wait_for_url("**/console/**")
    await page.close()


@pytest.fixture
async def chromium() -> AsyncIterator["Browser"]:
    """Run Chromium without a window."""
    from playwright.async_api import async_playwright, expect  # slow to import, and all test sessions import this file

    expect.set_options(timeout=WAIT_MS)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium_path())
        yield browser
        await browser.close()


@pytest.fixture
async def console(live: Any, chromium: "Browser") -> AsyncIterator[Console]:
    """Open the console of the live server as its owner. A test fails if a script of a page failed."""
    context = await chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    await sign_in(context, live.url, live.token)
    opened = Console(live.url, context, await context.new_page())
    opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
    yield opened
    await context.close()
    assert opened.faults == []
