"""The console in Chromium, signed in to a server of the benchmark."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Response

AXE = Path(__file__).resolve().parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_VIEW: Any = {"width": 1280, "height": 800}
_WAIT_MS = 60_000
_RESOURCES_LOADED = """async () => {
  const isLoaded = () => performance.getEntriesByType("resource").every((each) => each.responseEnd > 0);
  while (!isLoaded()) await new Promise((resume) => setTimeout(resume, 20));
}"""
"""Script that waits. `wait_for_function` evaluates text in the page, whose policy forbids that."""


@contextlib.asynccontextmanager
async def chromium() -> "AsyncIterator[Browser]":
    """Run Chromium without a window."""
    from playwright.async_api import async_playwright  # the smoke test of other parts needs no browser

    program = next((path for name in _PROGRAMS if (path := shutil.which(name)) is not None), None)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def signed_in(browser: "Browser", url: str, token: str) -> "AsyncIterator[BrowserContext]":
    """Open a window of its own that is signed in; its cache is empty but for the page of the sign-in."""
    context = await browser.new_context(viewport=_VIEW)
    context.set_default_timeout(_WAIT_MS)
    answer = await context.request.post(f"{url}/v1/session-links", headers={"Authorization": f"Bearer {token}"})
    if not answer.ok:
        raise RuntimeError(f"the server made no link to sign in: {answer.status} {await answer.text()}")
    page = await context.new_page()
    await page.goto(url + (await answer.json())["path"])
    await page.locator("h1").first.wait_for()
    await page.close()
    try:
        yield context
    finally:
        await context.close()


@dataclass(frozen=True)
class Load:
    """Requests and bytes of one load of a page."""

    compressed_bytes: int
    """Bytes of all bodies and headers, as they were sent."""
    requests: int


async def first_load(context: "BrowserContext", url: str) -> Load:
    """Load a page with an empty cache, and count what the server sends until the page is complete."""
    page = await context.new_page()
    sizes: list[int] = []
    session = await context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    await page.goto(url, wait_until="load")
    await page.locator("h1").first.wait_for()
    await page.evaluate(_RESOURCES_LOADED)
    await page.close()
    return Load(sum(sizes), len(sizes))


async def violations(page: "Page") -> list[str]:
    """Return what axe finds against WCAG 2.2, levels A and AA."""
    await page.evaluate(AXE.read_text())
    found: Any = await page.evaluate("tags => axe.run({ runOnly: tags })", _TAGS)
    return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


async def open_page(page: "Page", address: str) -> "Response | None":
    """Open a page of the console, and wait for its title."""
    response = await page.goto(address)
    await page.locator("h1").first.wait_for()
    return response
