"""Many open pages of one browser: they share one stream of changes, and hidden ones cost the server nothing."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.support.console.all_pages import tabs_of
from tests.support.console.signed_in_page import Console

if TYPE_CHECKING:
    from playwright.async_api import Page, Request

pytestmark = pytest.mark.browser
PAGES = 9
"""More than the six connections that a browser opens to a server."""


def requests_of(page: "Page") -> list[str]:
    """Return a list that gets the path of each request of a page to the API."""
    paths = list[str]()

    def on_request(request: "Request") -> None:
        if "/v1/" in request.url:
            paths.append("/v1/" + request.url.split("/v1/")[1])

    page.on("request", on_request)
    return paths


def row(page: "Page", name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


async def hide(page: "Page", is_hidden: bool) -> None:
    """Tell a page that it is hidden, or visible again. A browser without a window shows all its pages."""
    await page.evaluate(
        """isHidden => {
          Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true });
          const state = isHidden ? 'hidden' : 'visible';
          Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        }""",
        is_hidden,
    )


async def test_all_pages_of_a_browser_work_and_follow_changes_over_one_stream(console: Console, live: Any) -> None:
    pages = [console.page, *[await console.context.new_page() for _ in range(PAGES - 1)]]
    requests = [requests_of(page) for page in pages]
    for page in pages:
        await page.goto(f"{console.url}/console/jobs")
        await page.get_by_role("heading", name="There is no job yet").wait_for()
    await live.submit(name="first")
    for page in pages:
        await expect(row(page, "first")).to_be_visible()
    streams = [sum("changes?follow" in path for path in paths) for paths in requests]
    assert streams == [1] + [0] * (PAGES - 1)
    # The page that reads the stream is closed: another one continues after the last change.
    await pages[0].close()
    await live.submit(name="second")
    for page in pages[1:]:
        await expect(row(page, "second")).to_be_visible()
    assert sum("changes?follow" in path for paths in requests for path in paths) == 2


async def test_a_hidden_page_sends_nothing_and_is_current_again_when_it_is_shown(console: Console, live: Any) -> None:
    job = (await live.submit(name="first"))["id"]
    await live.run(job)
    await console.open("jobs")
    await expect(row(console.page, "first")).to_contain_text("RUNNING")
    other = await console.context.new_page()
    await other.goto(f"{console.url}/console/jobs")
    await hide(console.page, True)
    paths = requests_of(console.page)
    await live.submit(name="second")
    await expect(row(other, "second")).to_be_visible()  # the notice has arrived in this browser
    await asyncio.sleep(1.0)  # twice the time between two portions of changes
    assert paths == []
    await expect(row(console.page, "second")).to_have_count(0)
    await hide(console.page, False)
    await expect(row(console.page, "second")).to_be_visible()
    await live.submit(name="third")
    for page in (console.page, other):
        await expect(row(page, "third")).to_be_visible()


async def test_a_page_that_was_hidden_shows_what_changed_before_another_page_began(console: Console, live: Any) -> None:
    await live.submit(name="first")
    await console.open("jobs")
    await expect(row(console.page, "first")).to_be_visible()
    await hide(console.page, True)
    await live.submit(name="second")
    other = await console.context.new_page()
    await other.goto(f"{console.url}/console/jobs")
    await expect(row(other, "second")).to_be_visible()
    await live.submit(name="third")
    await expect(row(other, "third")).to_be_visible()  # the other page follows the changes
    await hide(console.page, False)
    for name in ("second", "third"):
        await expect(row(console.page, name)).to_be_visible()


async def test_the_only_page_resumes_the_stream_after_its_last_change(console: Console, live: Any) -> None:
    await console.open("jobs")
    await live.submit(name="first")
    await expect(row(console.page, "first")).to_be_visible()
    await hide(console.page, True)
    await live.submit(name="second")
    paths = requests_of(console.page)
    await hide(console.page, False)
    await expect(row(console.page, "second")).to_be_visible()
    assert [path for path in paths if "changes" in path] == ["/v1/changes?follow=true"]
    assert not any(path.startswith("/v1/jobs?page_size") for path in paths), "only the new job was read"


async def test_only_pages_that_a_change_concerns_load_again(console: Console, live: Any) -> None:
    pages = {path: await console.context.new_page() for path in ("cluster", "queue", "usage", "what-if", "")}
    for path, page in pages.items():
        await page.goto(f"{console.url}/console/{path}")
        await page.locator("h1").first.wait_for()
        await expect(page.locator("p.state[role=status]")).to_have_count(0)
    requests = {path: requests_of(page) for path, page in pages.items()}
    await console.open("jobs")
    await live.submit(name="waits")
    await expect(row(console.page, "waits")).to_be_visible()
    await expect(pages["queue"].get_by_role("link", name="waits", exact=True)).to_be_visible()
    await expect(pages[""].get_by_text("1 job waits.")).to_be_visible()
    assert requests["cluster"] == requests["usage"] == requests["what-if"] == []
    assert requests["queue"] == ["/v1/queue?limit=200"] and requests[""] == ["/v1/overview"]


EXPECTED_REQUESTS = {
    "": ["/v1/overview"],
    "jobs": ["/v1/jobs?id={new}&page_size=100"],
    "queue": ["/v1/queue?limit=200"],
}
"""Requests of each page after the submission of another job; pages that are not named request nothing."""


async def test_each_page_requests_only_what_a_submission_changes(console: Console, live: Any, job_events: Any) -> None:
    job = (await live.submit(name="trains"))["id"]
    await live.run(job)
    await live.report(job, job_events.step(1, 2, loss=1.5))
    ended = (await live.submit(name="ended"))["id"]  # nothing of it changes any more
    await live.http.post(f"/v1/jobs/{ended}/cancel")
    await live.submit(name="waits")
    paths = ["", "jobs", "submit", "compare", "cluster", "queue", "what-if", "reliability", "usage", "admin"]
    paths += [f"admin/{tab}" for tab in tabs_of("admin")] + [f"jobs/{ended}/{tab}" for tab in tabs_of("job")]
    pages = {path: await console.context.new_page() for path in paths}
    for path, page in pages.items():
        await page.goto(f"{console.url}/console/{path}")
        await page.locator("h1").first.wait_for()
        await expect(page.locator(".state[role=status]")).to_have_count(0)
    requests = {path: requests_of(page) for path, page in pages.items()}
    new = (await live.submit(name="new"))["id"]
    await expect(row(pages["jobs"], "new")).to_be_visible()
    await expect(pages["queue"].get_by_role("link", name="new", exact=True)).to_be_visible()
    await expect(pages[""].get_by_text("2 jobs wait")).to_be_visible()
    await asyncio.sleep(1.0)  # twice the time between two portions of changes
    expected = {path: [each.format(new=new) for each in EXPECTED_REQUESTS.get(path, [])] for path in paths}
    found = {path: [each for each in sent if trains_not(each, job)] for path, sent in requests.items()}
    assert found == expected


def trains_not(path: str, job: str) -> bool:
    """Return False for the progress of a running job, which its pages and the list request at an interval."""
    return job not in path


async def test_a_page_of_a_job_does_not_read_the_overview_for_its_links(console: Console, live: Any) -> None:
    job = (await live.submit(name="waits"))["id"]
    paths = requests_of(console.page)
    await console.open(f"jobs/{job}/story")
    await expect(console.page.locator(".state[role=status]")).to_have_count(0)
    assert f"/v1/jobs/{job}" in paths and "/v1/overview" not in paths


async def test_a_change_of_a_row_out_of_view_is_read_when_it_comes_into_view(console: Console, live: Any) -> None:
    oldest = (await live.submit(name="oldest"))["id"]
    for number in range(90):
        await live.submit(name=f"job-{number}")
    await console.open("jobs")
    await expect(row(console.page, "job-89")).to_be_visible()
    await expect(console.page.get_by_text("91 jobs")).to_be_visible()
    paths = requests_of(console.page)
    await live.run(oldest)
    await live.submit(name="newest")
    await expect(row(console.page, "newest")).to_be_visible()
    assert not any(oldest in path for path in paths)
    await console.page.get_by_role("region", name="Jobs", exact=True).focus()
    await console.page.keyboard.press("End")
    await expect(row(console.page, "oldest")).to_contain_text("RUNNING")
    assert any(oldest in path for path in paths)


async def test_pages_that_follow_a_job_leave_connections_for_requests(
    console: Console, live: Any, job_events: Any
) -> None:
    job = (await live.submit(name="trains"))["id"]
    await live.run(job)
    await live.report(job, job_events.step(1, 2, loss=1.5))
    pages = [await console.context.new_page() for _ in range(PAGES)]
    for page in pages:
        await page.goto(f"{console.url}/console/jobs/{job}/curves")
        await page.locator("h1").first.wait_for()
    for page in (pages[0], pages[-1]):
        await page.locator("main nav").get_by_role("link", name="Spec").first.click()
        await expect(page).to_have_url(f"{console.url}/console/jobs/{job}/spec")
        await expect(page.locator("main")).to_contain_text("trains")
