"""The page that compares jobs."""

from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


@pytest.fixture
async def jobs(live: Any, job_events: Any) -> list[str]:
    """Run two jobs whose losses differ from step 31."""
    found = [(await live.submit(name=name, seed=seed))["id"] for name, seed in (("one", 1), ("two", 2))]
    for job, difference in zip(found, (0.0, 2.0), strict=True):
        await live.run(job)
        losses = [(number, 9 - number / 20 + (difference if number > 30 else 0)) for number in range(2, 61)]
        await live.report(job, *(job_events.step(1, number, loss=loss) for number, loss in losses))
    return found


def cells(console: Console, job: str) -> Locator:
    results = console.page.get_by_role("region", name="Results")
    return results.get_by_role("row").filter(has_text=job).get_by_role("cell")


async def test_results_are_those_of_the_api(console: Console, live: Any, jobs: list[str]) -> None:
    await console.open("compare?" + "&".join(f"job={job}" for job in jobs))
    await expect(cells(console, "two").nth(5)).to_have_text("31")
    for name, job in zip(("one", "two"), jobs, strict=True):
        found = await live.client(lambda client, job=job: client.curves(job, metrics=["loss"]))
        points = found.curves[0].committed
        await expect(cells(console, name).nth(2)).to_have_text(f"{points.mean[-1]:.4g}")
        low = min(points.low)
        best = f"{low:.4g}, {points.steps[points.low.index(low)]}"
        await expect(cells(console, name).nth(3)).to_have_text(best)
    await console.page.get_by_label("Differ by more than (%)").fill("50")
    await console.page.keyboard.press("Tab")
    await expect(cells(console, "two").nth(5)).to_have_text("within 50 %")


async def test_jobs_are_added_and_removed_with_the_keyboard(console: Console, jobs: list[str]) -> None:
    await console.open("compare")
    await expect(console.page.get_by_role("heading", name="No job chosen")).to_be_visible()
    field = console.page.get_by_label("Add a job")
    for name in ("one", "two"):
        await field.fill(name)
        await field.press("Enter")
        await cells(console, name).first.wait_for()
    assert console.page.url.endswith("compare?" + "&".join(f"job={job}" for job in jobs))
    await field.fill("no-such-job")
    await field.press("Enter")
    await expect(console.page.get_by_role("alert")).to_contain_text("no-such-job")
    await console.page.get_by_role("button", name="Remove one").press("Enter")
    await expect(cells(console, "one")).to_have_count(0)
    await console.page.locator("h1").click()
    await console.page.keyboard.press("ArrowLeft")
    await console.page.keyboard.press("ArrowLeft")
    await expect(console.page.locator(".compare-readout")).to_contain_text("step 59")


async def test_the_curves_of_a_job_link_to_the_comparison(console: Console, jobs: list[str]) -> None:
    await console.open(f"jobs/{jobs[0]}/curves")
    await console.page.get_by_role("link", name="Compare").click()
    await cells(console, "one").first.wait_for()


async def test_a_range_is_chosen_in_the_chart_and_in_fields(console: Console, jobs: list[str]) -> None:
    await console.open("compare?" + "&".join(f"job={job}" for job in jobs))
    await cells(console, "two").first.wait_for()
    best = await cells(console, "one").nth(3).inner_text()
    chart = console.page.locator(".line-chart .u-over")
    box = await chart.bounding_box()
    assert box is not None
    await console.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    await console.page.mouse.down()
    await console.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20, steps=4)
    await console.page.mouse.up()
    start = console.page.get_by_label("From step")
    await expect(start).not_to_have_value("")
    assert 25 < float(await start.input_value()) < 35 and "from=" in console.page.url
    await start.fill("40")
    await console.page.get_by_label("To step").fill("50")
    await console.page.keyboard.press("Tab")
    await expect(console.page.locator(".compare-readout")).to_contain_text("step 50")
    await expect(cells(console, "one").nth(3)).to_have_text(best)  # results are those of the whole curve
    await console.page.get_by_role("button", name="Show all").click()
    await expect(console.page.locator(".compare-readout")).to_contain_text("step 60")
    await console.page.get_by_label("Axis").select_option("time since the start")
    await expect(console.page.get_by_label("From second")).to_have_value("")


async def test_the_lines_of_jobs_differ_without_colours(console: Console, jobs: list[str]) -> None:
    await console.open("compare?" + "&".join(f"job={job}" for job in jobs))
    await cells(console, "two").first.wait_for()
    results = console.page.get_by_role("region", name="Results")
    dashes = [await each.get_attribute("stroke-dasharray") for each in await results.locator("svg line").all()]
    assert len(dashes) == len(set(dashes)) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_comparison_is_accessible(console: Console, jobs: list[str], scheme: Any, width: int) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.page.set_viewport_size({"width": width, "height": 800})
    for path in ("compare", "compare?" + "&".join(f"job={job}" for job in jobs), "compare?job=no-such-job"):
        await console.open(path)
        ready = cells(console, "two").first if "&" in path else console.page.locator(".state h2")
        await ready.wait_for()
        assert await console.violations() == [], path
        assert await console.page.evaluate("document.documentElement.scrollWidth") <= width
