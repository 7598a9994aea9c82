"""The page of the queue: lanes of projects, waiting jobs, and the dialog of a quota."""

from typing import Any

import pytest
from playwright.async_api import expect

from regroup.service.store.rows.records import PLACEABLE, START_ESTIMATED, Condition
from tests.support.console.signed_in_page import Console
from tests.support.inputs.placed_jobs import add_rack, place_job

pytestmark = pytest.mark.browser


async def projects_with_jobs(live: Any) -> str:
    """Let a project borrow two devices, and let two jobs wait; return the id of the first."""
    add_rack(live, "rack-a", 2)
    await live.http.put("/v1/projects/vision", json={"guaranteed": 2, "limit": 8})
    runs = (await live.submit(name="runs", project="vision", layout={"dp": 4}))["id"]
    await place_job(live, runs, {"rack-a-0": 4})
    first = (await live.submit(name="first", project="vision", layout={"dp": 4}, priority="high"))["id"]
    await live.submit(name="second", project="nlp", max_duration="1h")
    conditions = (
        Condition(PLACEABLE, False, "resources", "2 of 4 ranks fit"),
        Condition(START_ESTIMATED, True, "promised", "2040-01-02T03:04Z"),
    )
    await live.store.set_conditions(live.lease, first, conditions, now=live.services.clock())
    return first


async def test_lanes_and_jobs_have_the_numbers_of_the_api(live: Any, console: Console) -> None:
    first = await projects_with_jobs(live)
    await console.open("queue")
    bar = console.page.get_by_role("row", name="vision").first.get_by_role("img")
    await expect(bar).to_have_attribute("aria-label", "4 in use, 2 guaranteed, 2 borrowed, 4 requested, limit 8")
    (project,) = [each for each in (await live.http.get("/v1/projects")).json()["projects"] if each["name"] == "vision"]
    assert (project["allocated"], project["guaranteed"], project["limit"]) == (4, 2, 8)
    rows = console.page.get_by_role("region", name="Waiting jobs in scheduling order").locator("tbody tr")
    queue = (await live.http.get("/v1/queue")).json()["jobs"]
    await expect(rows).to_have_count(len(queue))
    for index, job in enumerate(queue):
        await expect(rows.nth(index)).to_contain_text(job["name"])
    row = rows.nth([job["id"] for job in queue].index(first))
    await expect(row).to_contain_text("2 of 4 ranks fit")
    await expect(row).to_contain_text("high")
    await expect(row.locator(".queue-start")).to_contain_text("in ")
    await row.get_by_role("link", name="first").click()
    await console.page.wait_for_url(f"**/jobs/{first}/why")


async def test_a_project_filters_the_queue_in_the_address(live: Any, console: Console) -> None:
    await projects_with_jobs(live)
    await console.open("queue?project=nlp")
    rows = console.page.get_by_role("region", name="Waiting jobs in scheduling order").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("second")
    await console.page.get_by_role("button", name="Show all projects").click()
    await expect(rows).to_have_count(2)


async def test_a_dialog_shows_the_refusal_of_a_wrong_quota(live: Any, console: Console) -> None:
    await projects_with_jobs(live)
    await console.open("queue?edit=vision")
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_label("Limit (devices)").fill("1")
    await expect(dialog.get_by_role("alert")).to_contain_text("must be at least guaranteed = 2")
    await expect(dialog.get_by_role("button", name="Save vision")).to_be_disabled()
    await dialog.get_by_label("Limit (devices)").fill("2")
    await expect(dialog).to_contain_text("Running jobs continue above the limit.")
    await dialog.get_by_text("As commands").click()
    await expect(dialog).to_contain_text("regroup projects set vision limit=2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_with_data_empty_and_with_an_error(
    live: Any, console: Console, scheme: Any
) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("queue")
    await expect(console.page.get_by_role("heading", name="No job waits")).to_be_visible()
    assert await console.violations() == []
    await projects_with_jobs(live)
    await console.open("queue")
    await console.page.locator(".queue-start").first.wait_for()
    assert await console.violations() == []
    await console.open("queue?edit=vision")
    await console.page.get_by_role("dialog").get_by_text("No setting is different.").wait_for()
    assert await console.violations() == []
    await console.page.route("**/v1/queue?*", lambda route: route.fulfill(status=403, json={"detail": "not yours"}))
    await console.open("queue")
    await expect(console.page.get_by_role("alert")).to_contain_text("not yours")
    assert await console.violations() == []


async def test_a_phone_shows_the_page_without_overflow(live: Any, console: Console) -> None:
    await projects_with_jobs(live)
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open("queue")
    await console.page.locator(".queue-bar").first.wait_for()
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
