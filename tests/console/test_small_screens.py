"""Every page fits a phone and a small window: nothing is cut off, and targets are large enough."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.all_pages import as_text, fill_server, missing_pages
from tests.support.console.interactive_elements import cut_off, small_targets
from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import trained_job

pytestmark = pytest.mark.browser
PHONE, WINDOW = {"width": 390, "height": 844}, {"width": 1280, "height": 800}


async def settle(console: Console) -> None:
    """Wait until nothing on the page loads."""
    await expect(console.page.locator("p.state[role=status]")).to_have_count(0)


@pytest.mark.parametrize("size", [PHONE, WINDOW], ids=["phone", "window"])
async def test_every_page_fits(console: Console, live: Any, size: Any) -> None:
    addresses = await fill_server(live)
    assert missing_pages(addresses) == []
    await console.page.set_viewport_size(size)
    wrong = dict[str, list[str]]()
    for address in addresses:
        await console.open(address)
        await settle(console)
        if faults := [*await cut_off(console.page), *(f"small: {each}" for each in await small_targets(console.page))]:
            wrong[address] = faults
    assert not wrong, as_text(wrong)


async def test_what_does_not_fit_is_found(console: Console) -> None:
    """Show that the test above can fail."""
    await console.page.set_viewport_size(PHONE)
    await console.open()
    await settle(console)
    await console.page.evaluate(
        """() => {
          const html = '<button id=wide>wide</button><button id=low>low</button><p id=cut>more words than fit</p>';
          document.querySelector('h1').insertAdjacentHTML('afterend', html);
          const set = (id, style) => Object.assign(document.getElementById(id).style, style);
          set('wide', { width: '500px' });
          set('low', { padding: '0', height: '12px' });
          set('cut', { width: '3rem', overflow: 'hidden', whiteSpace: 'nowrap' });
        }"""
    )
    faults = " ".join(await cut_off(console.page))
    assert 'beyond the edge: button "wide"' in faults and 'cut at the side: p "more words than fit"' in faults
    assert any(each.startswith('button "low"') for each in await small_targets(console.page))


@pytest.mark.parametrize("opener", ["Cancel", "Suspend"])
async def test_a_dialog_fits_a_phone(console: Console, live: Any, opener: str) -> None:
    job = (await trained_job(live))["id"]
    await console.page.set_viewport_size(PHONE)
    await console.open(f"jobs/{job}")
    await console.page.get_by_role("button", name=opener, exact=True).click()
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_text("As commands").click()
    box = await dialog.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    assert await cut_off(console.page) == [] and await small_targets(console.page) == []
