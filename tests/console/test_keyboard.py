"""Every page works with the keyboard alone: the Tab key reaches everything, the focus is visible, dialogs keep it."""

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.support.console.all_pages import as_text, fill_server, missing_pages
from tests.support.console.interactive_elements import walk
from tests.support.console.shown_jobs import add_node, job_with_ranks, waiting_job
from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import trained_job

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = pytest.mark.browser


async def focused(console: Console) -> str:
    """Return the text of the element with the focus."""
    return await console.page.evaluate(
        "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
    )


async def test_the_tab_key_reaches_everything_on_every_page(console: Console, live: Any) -> None:
    addresses = await fill_server(live)
    assert missing_pages(addresses) == []
    wrong = dict[str, list[str]]()
    for address in addresses:
        await console.open(address)
        await settle(console)
        way = await walk(console.page)
        assert len(way.stops) > 10, f"{address}: only {[each.name for each in way.stops]}"
        faults = [f"not reached: {name}" for name in way.missed]
        faults += [f"the focus is not visible: {each.name}" for each in way.stops if not each.is_marked]
        faults += [f"not in view: {each.name}" for each in way.stops if not each.is_in_view]
        faults += [f"not in the order of the page: {each.name}" for each in way.stops if not each.is_in_order]
        if faults:
            wrong[address] = faults
    assert not wrong, as_text(wrong)


async def test_an_element_that_the_tab_key_misses_is_found(console: Console) -> None:
    """Show that the test above can fail."""
    await console.open()
    await settle(console)
    await console.page.evaluate(
        """() => {
          const html = '<button tabindex=-1>hidden from keys</button><button id=bare>without a mark</button>';
          document.querySelector('h1').insertAdjacentHTML('afterend', html);
          document.querySelector('#bare').style.outline = 'none';
        }"""
    )
    way = await walk(console.page)
    assert way.missed == ['button "hidden from keys"']
    assert [each.name for each in way.stops if not each.is_marked] == ['button "without a mark"']


async def test_the_first_stop_skips_the_navigation(console: Console) -> None:
    await console.open("jobs")
    await console.page.keyboard.press("Tab")
    assert await focused(console) == "Skip to content"
    await expect(console.page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    await console.page.keyboard.press("Enter")
    await console.page.keyboard.press("Tab")
    is_inside = await console.page.evaluate("document.querySelector('#content').contains(document.activeElement)")
    assert is_inside, await focused(console)
    await expect(console.page.locator("h1")).to_have_text("Jobs")


@pytest.mark.parametrize(
    ("address", "opener"),
    [
        ("jobs/{job}", "Suspend"),
        ("jobs/{job}", "Cancel"),
        ("jobs/{job}/spec", "Clone and edit"),
        ("jobs/{job}/data", "Verify step 8"),
        ("queue", "Edit default"),
        ("admin/tokens", "New token"),
        ("admin/hooks", "New hook"),
        ("admin/members", "Add member"),
        ("admin/secrets", "Set secret"),
    ],
)
async def test_a_dialog_keeps_the_focus_and_returns_it(console: Console, live: Any, address: str, opener: str) -> None:
    job = (await trained_job(live))["id"]
    await live.http.put("/v1/projects/default", json={"limit": 8})
    await console.open(address.format(job=job))
    button = console.page.get_by_role("button", name=opener, exact=True)
    await button.focus()
    await console.page.keyboard.press("Enter")
    dialog = console.page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await expect(dialog.get_by_text("Checking…")).to_have_count(0)
    for key in ("Tab", "Shift+Tab"):
        reached = await stops_within(console, dialog, key)
        assert "Close" in reached and len(reached) > 2, reached
    await console.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(button).to_be_focused()


async def stops_within(console: Console, dialog: "Locator", key: str) -> set[str]:
    """Press a key more often than the dialog has elements; return what got the focus. Nothing behind it may."""
    reached = set[str]()
    for _ in range(30):
        await console.page.keyboard.press(key)
        place = await dialog.evaluate(
            "dialog => dialog.contains(document.activeElement) || document.activeElement === document.body"
        )
        assert place, f"{key} leaves the dialog to {await focused(console)}"
        reached.add(await focused(console))
    return reached


async def test_the_focus_stays_on_the_page_when_the_opener_is_gone(console: Console, live: Any) -> None:
    job = await waiting_job(live, "ends")
    await console.open("jobs")
    await console.page.get_by_role("checkbox", name="Select ends").focus()
    await console.page.keyboard.press("Space")
    await console.page.get_by_role("button", name="Cancel", exact=True).focus()
    await console.page.keyboard.press("Enter")
    confirm = console.page.get_by_role("button", name="Cancel ends")
    await expect(confirm).to_be_enabled()
    await confirm.focus()
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("dialog")).to_have_count(0)
    assert (await live.http.get(f"/v1/jobs/{job}")).json()["state"] == "CANCELLED"
    await expect(console.page.get_by_role("row", name="Select ends")).to_contain_text("CANCELLED")
    await expect(console.page.locator("#content:focus, #content :focus")).to_have_count(1)


async def test_arrow_keys_move_between_tabs(console: Console, live: Any) -> None:
    job = await waiting_job(live)
    for address, first, second, last in (
        (f"jobs/{job}/story", "Story", "Curves", "Spec and events"),
        ("admin", "You", "Tokens", "Server"),
    ):
        await console.open(address)
        await console.page.get_by_role("link", name=first, exact=True).focus()
        for key, expected in (("ArrowRight", second), ("End", last), ("ArrowRight", first), ("ArrowLeft", last)):
            await console.page.keyboard.press(key)
            assert await focused(console) == expected, (address, key)
        await console.page.keyboard.press("Home")
        await console.page.keyboard.press("ArrowRight")
        await console.page.keyboard.press("Enter")
        await expect(console.page.get_by_role("link", name=second, exact=True)).to_have_attribute(
            "aria-current", "page"
        )


async def test_arrow_keys_choose_a_row_and_enter_opens_it(console: Console, live: Any) -> None:
    jobs = [await waiting_job(live, f"job-{number}") for number in range(30)]
    for address, table, order, target in (
        ("jobs", "Jobs", list(reversed(jobs)), ""),
        ("queue", "Waiting jobs in scheduling order", jobs, "/why"),
    ):
        await console.open(address)
        region = console.page.get_by_role("region", name=table, exact=True)
        await region.focus()
        current = region.locator("tr[aria-current]")
        await console.page.keyboard.press("ArrowDown")
        await console.page.keyboard.press("ArrowDown")
        await console.page.keyboard.press("ArrowUp")
        await expect(current).to_have_attribute("aria-rowindex", "2")
        await console.page.keyboard.press("End")
        await expect(current).to_have_attribute("aria-rowindex", "31")
        await expect(current).to_be_in_viewport()
        await console.page.keyboard.press("PageUp")
        await console.page.keyboard.press("Home")
        await console.page.keyboard.press("ArrowDown")
        await console.page.keyboard.press("Enter")
        await console.page.wait_for_url(f"**/console/jobs/{order[1]}{target}*")


async def test_arrow_keys_move_in_the_map_and_in_the_grid_of_ranks(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    for name in ("node-a", "node-b"):
        add_node(live, name)
    for address, group in (("cluster", "Map of the cluster"), (f"jobs/{job}/ranks", None)):
        await console.open(address)
        box = console.page.locator(".ranks-grid") if group is None else console.page.get_by_role("group", name=group)
        cell = box.locator("button[tabindex='0']").last
        await cell.focus()
        before = await focused(console)
        await console.page.keyboard.press("ArrowRight")
        assert await focused(console) != before, address


async def test_escape_closes_the_menu_of_a_phone_and_the_list_of_keys(console: Console) -> None:
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open()
    menu = console.page.get_by_role("button", name="Menu")
    await menu.focus()
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("link", name="Cluster")).to_be_visible()
    await console.page.keyboard.press("Escape")
    await expect(console.page.get_by_role("link", name="Cluster")).to_be_hidden()
    await expect(menu).to_be_focused()
    await console.page.keyboard.press("?")
    keys = console.page.get_by_role("dialog", name="Keys")
    await expect(keys).to_be_visible()
    await console.page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)
    await expect(menu).to_be_focused()


async def settle(console: Console) -> None:
    """Wait until nothing on the page loads."""
    await expect(console.page.locator("p.state[role=status]")).to_have_count(0)
