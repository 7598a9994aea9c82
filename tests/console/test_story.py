"""The tab Story of a job: the time axis, its table, an incident with evidence, empty and error states."""

import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.inputs.eventful_job import HANG, KILL, run_eventful_job, submit_eventful_job

pytestmark = pytest.mark.browser
MAX_S = 1.0
"""Longest time until an event is on an open page."""


async def queried(console: Console) -> dict[str, str]:
    """Return the query of the address."""
    return await console.page.evaluate("Object.fromEntries(new URL(location).searchParams)")


async def leads_to(console: Console, query: str) -> None:
    """Wait until the address has this query."""
    await console.page.wait_for_url(lambda address: urlsplit(address).query == query.removeprefix("?"))


async def test_the_axis_shows_generations_incidents_and_a_resize(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    await console.open(f"jobs/{job.id}/story")
    axis = console.page.locator(".story-timeline svg")
    generations = axis.get_by_role("button", name="Generation")
    await expect(generations).to_have_count(4)
    heights = [await generations.nth(index).locator("rect").get_attribute("height") for index in range(4)]
    assert heights[0] == heights[1] and float(heights[2] or 0) == 2 * float(heights[1] or 0), "8 ranks after 4"
    await expect(generations.nth(1)).to_have_accessible_name(
        "Generation 2: 4 ranks, dp_shard 4, from mirrors at step 18, steps 19 to 40"
    )
    await expect(axis.get_by_role("button", name="Incident")).to_have_count(2)
    assert await axis.locator(".story-progress.repeated").count() == 2
    assert await axis.locator(".story-gap").count() == 2
    await expect(axis.locator(".story-moment.mirror")).to_have_count(2)
    await axis.locator(".story-moment.mirror").last.hover()
    await expect(console.page.locator(".story-details")).to_contain_text("Step 18 is mirrored")
    await generations.nth(2).click()
    assert (await queried(console))["generation"] == "3"


async def test_an_incident_opens_with_the_keyboard_and_shows_the_outlier(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    await console.open(f"jobs/{job.id}/story")
    await console.page.get_by_role("button", name=f"Incident {HANG}:").focus()
    await expect(console.page.locator(".story-details")).to_contain_text("no rank moved on for 3 s. detect 3 s")
    await console.page.keyboard.press("Enter")
    panel = console.page.get_by_role("region", name=f"Incident {HANG}")
    outlier = panel.locator("figure.outlier")
    await expect(outlier).to_contain_text("Rank 3")
    await expect(outlier.locator("pre")).to_contain_text("read_batch")
    await expect(panel.locator(".story-stacks figure").nth(1)).to_contain_text("Ranks 0, 1, 2")
    await expect(panel).to_contain_text("8 more steps, 2 s")
    assert (await queried(console))["incident"] == str(HANG)
    await panel.get_by_label("Read a file of the evidence").select_option("ranks/3/stdout.txt")
    await expect(panel.locator("pre.story-file")).to_have_text("hello from 3\n")
    await console.page.reload()
    await expect(panel.locator("pre.story-file")).to_have_text("hello from 3\n")
    await panel.get_by_role("button", name="Close").click()
    await expect(panel).to_have_count(0)


async def test_an_incident_without_evidence(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    await console.open(f"jobs/{job.id}/story?incident={KILL}")
    panel = console.page.get_by_role("region", name=f"Incident {KILL}")
    await expect(panel).to_contain_text("There are no stacks")
    await expect(panel).to_contain_text("8 devices for 1.9 s, and 10 steps of 200 ms again")
    await console.open(f"jobs/{job.id}/story?incident=9")
    await expect(console.page.get_by_text("This job has no incident 9.")).to_be_visible()


async def test_zoom_and_pan_by_keys_wheel_and_pointer_are_in_the_address(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    await console.open(f"jobs/{job.id}/story?from=10&to=20")
    axis = console.page.locator(".story-timeline svg")
    await axis.press("ArrowRight")
    await leads_to(console, "?from=12&to=22")
    await axis.press("+")
    await leads_to(console, "?from=13.67&to=20.33")
    await axis.press("0")
    await leads_to(console, "")
    box = await axis.bounding_box()
    assert box is not None
    await console.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    await console.page.keyboard.down("Control")
    await console.page.mouse.wheel(0, -500)
    await console.page.keyboard.up("Control")
    near = await queried(console)
    assert float(near["from"]) > 2 and float(near["to"]) < 29
    await console.page.mouse.down()
    await console.page.mouse.move(box["x"] + box["width"] / 2 + 100, box["y"] + 80, steps=4)
    await console.page.mouse.up()
    assert float((await queried(console))["from"]) < float(near["from"])


async def test_the_table_has_all_that_is_drawn(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    await console.open(f"jobs/{job.id}/story")
    await console.page.get_by_role("button", name="As a table").click()
    rows = console.page.locator(".story-table tbody tr")
    await expect(rows).to_have_count(11 + 4 + 2 + 2 + 1 + 2)  # the last ones are mirrored steps
    await console.page.get_by_label("Kind").select_option("Request")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("resize requested to dp_shard=8: more nodes arrived")
    await console.page.get_by_label("Kind").select_option("Incident")
    await rows.nth(0).get_by_role("button").click()
    await expect(console.page.get_by_role("region", name=f"Incident {HANG}")).to_be_visible()


async def test_a_running_job_grows_and_shows_an_event_within_a_second(console: Console, live: Any) -> None:
    job = await submit_eventful_job(live)
    await console.open(f"jobs/{job.id}/story")
    await expect(console.page.locator(".story-state.queued")).to_have_count(1)
    await job.train()
    axis = console.page.locator(".story-timeline svg")
    await expect(axis.get_by_role("button", name="Generation")).to_have_count(1)
    await job.hang()
    started_s = time.monotonic()
    await axis.get_by_role("button", name="Incident 1").wait_for()
    assert time.monotonic() - started_s < MAX_S
    before = await axis.get_by_role("button", name="Generation 2").locator("rect").get_attribute("x")
    await expect(axis.get_by_role("button", name="Generation 2").locator("rect")).not_to_have_attribute(
        "x", before or ""
    )


async def test_a_server_that_fails_is_an_error_with_a_way_on(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    refusal = {"status": 500, "json": {"detail": "the database is damaged", "code": "internal"}}

    async def refuse(route: Any) -> None:
        await route.fulfill(**refusal)

    await console.page.route("**/v1/jobs/*/story*", refuse)
    await console.open(f"jobs/{job.id}/story")
    await expect(console.page.get_by_role("alert")).to_contain_text("the database is damaged")
    assert await console.violations() == []
    await console.page.unroute("**/v1/jobs/*/story*")
    await console.page.get_by_role("button", name="Try again").click()
    await expect(console.page.locator(".story-timeline svg")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_story_is_accessible_and_fits(console: Console, live: Any, scheme: Any) -> None:
    job = await run_eventful_job(live)
    waiting = (await live.submit(name="waits"))["id"]
    await console.page.emulate_media(color_scheme=scheme)
    for width in (1280, 390):
        await console.page.set_viewport_size({"width": width, "height": 800})
        for address, shown in (
            (f"jobs/{job.id}/story?incident={HANG}", "figure.outlier"),
            (f"jobs/{job.id}/story?view=table", ".story-table tbody tr"),
            (f"jobs/{waiting}/story", ".story-state.queued"),
        ):
            await console.open(address)
            await console.page.locator(shown).first.wait_for()
            assert await console.violations() == [], address
            assert await console.page.evaluate("document.documentElement.scrollWidth") <= width, address
