"""The frame of all pages: sign-in, navigation, keys, colours, a page that does not exist, accessibility."""

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.browser
PAGES = ("", "jobs", "submit", "cluster", "queue", "what-if", "reliability", "usage", "admin", "no-such-page")


async def test_a_browser_that_is_not_signed_in_shows_the_remedy(live: Any, chromium: "Browser") -> None:
    page = await chromium.new_page()
    await page.goto(f"{live.url}/console/jobs/j_1")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await expect(page.locator("pre")).to_have_text("regroup console jobs/j_1")


async def test_links_and_keys_open_pages_without_loading_again(console: Console) -> None:
    await console.open()
    await console.page.evaluate("globalThis.stays = true")
    await console.page.get_by_role("link", name="Usage").click()
    await expect(console.page.locator("h1")).to_have_text("Usage")
    await console.page.keyboard.press("g")
    await console.page.keyboard.press("j")
    await expect(console.page.locator("h1")).to_have_text("Jobs")
    await console.page.go_back()
    await expect(console.page.locator("h1")).to_have_text("Usage")
    assert await console.page.evaluate("globalThis.stays")


async def test_the_colours_are_a_choice_that_stays(console: Console) -> None:
    await console.open()
    button = console.page.get_by_role("button", name="Colours")
    await button.click()
    await button.click()
    await console.page.reload()
    await expect(button).to_have_text("Colours: dark")
    assert await console.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_frame_of_each_page_is_accessible(console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    for path in PAGES:
        await console.open(path)
        assert await console.violations() == [], path


async def test_a_phone_reaches_each_page_by_its_menu(console: Console) -> None:
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open()
    await console.page.get_by_role("button", name="Menu").click()
    await console.page.get_by_role("link", name="Cluster").click()
    await expect(console.page.locator("h1")).to_have_text("Cluster")
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
