"""Many tabs of one browser: a browser opens six connections to a server, so tabs share the stream of changes."""

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.browser
TABS = 9
"""More than a browser has connections to one server."""


async def open_tabs(console: Console, path: str) -> list["Page"]:
    tabs: list[Page] = []
    for _ in range(TABS):
        tab = await console.context.new_page()
        await tab.goto(f"{console.url}/console/{path}")
        await tab.locator("h1").first.wait_for()
        tabs.append(tab)
    return tabs


async def test_each_of_many_tabs_opens_and_shows_what_changes(live: Any, console: Console) -> None:
    await live.submit(name="first")
    tabs = await open_tabs(console, "jobs")
    await live.submit(name="second")
    for tab in tabs:
        await expect(tab.get_by_role("link", name="second", exact=True)).to_be_visible()
    leader, *others = tabs
    await leader.close()
    await live.submit(name="third")
    for tab in others:
        await expect(tab.get_by_role("link", name="third", exact=True)).to_be_visible()


async def test_many_tabs_that_follow_a_job_leave_connections_for_requests(
    live: Any, console: Console, job_events: Any
) -> None:
    job = (await live.submit(name="trains"))["id"]
    await live.run(job)
    await live.report(job, job_events.step(1, 2, loss=1.5))
    tabs = await open_tabs(console, f"jobs/{job}/curves")
    for tab in (tabs[0], tabs[-1]):
        await tab.locator("main nav").get_by_role("link", name="Spec", exact=False).first.click()
        await expect(tab).to_have_url(f"{console.url}/console/jobs/{job}/spec")
        await expect(tab.locator("main")).to_contain_text("trains")
