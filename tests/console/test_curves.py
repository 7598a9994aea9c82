"""The tab with the curves of a job."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser
# The chart draws on a canvas. In its upper right part are only the repeated steps, whose loss is high.
_FAINT_PIXELS = """element => {
  const canvas = element.querySelector("canvas");
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(width / 2, 0, width / 2, height * 0.35);
  const near = (value, other) => Math.abs(value - other) < 12;
  let found = 0;
  for (let index = 0; index < data.length; index += 4) {
    const [red, green, blue, alpha] = data.slice(index, index + 4);
    if (near(red, 21) && near(green, 101) && near(blue, 192) && alpha > 25 && alpha < 135) found += 1;
  }
  return found;
}"""


@pytest.fixture
async def job(live: Any, job_events: Any) -> str:
    """Run a job whose generation 2 repeats the steps 41 to 60, and continues to 100."""
    found = (await live.submit(name="gpt"))["id"]
    await live.run(found)

    def row(generation: int, number: int, loss: float) -> Any:
        return job_events.step(generation, number, loss=loss, extra={"mfu": 0.4, "router_loss": number / 10})

    incident = {"id": "i1", "cause": "rank_exit", "reason": "rank_exit", "recovery_action": "respawn", "at_step": 60}
    await live.report(found, *(row(1, number, 9.0 - number / 20 if number <= 40 else 9.0) for number in range(2, 61)))
    lost = ("incident", 1, {**incident, "durations": {"total": 2.5}, "steps_lost": 20})
    await live.report(found, lost, job_events.formed(2, 40))
    await live.report(found, *(row(2, number, 4.0 - number / 100) for number in range(41, 101)))
    await live.store.predictions.put(live.lease, found, 1, {"step_s": 0.25})
    return str(found)


async def test_the_values_under_the_cursor_are_those_of_the_api(console: Console, live: Any, job: str) -> None:
    await console.open(f"jobs/{job}/curves?metrics=loss,step_s,router_loss")
    await console.page.locator(".line-chart canvas").nth(2).wait_for()
    readout = console.page.get_by_role("status").filter(has_text="step")
    await console.page.keyboard.press("ArrowLeft")
    await expect(readout).to_contain_text("step 100")
    await console.page.keyboard.press("ArrowLeft")
    await expect(readout).to_contain_text("step 99")
    found = await live.client(lambda client: client.curves(job, metrics=["loss", "router_loss"]))
    loss, router = (dict(zip(each.committed.steps, each.committed.mean, strict=True)) for each in found.curves)
    await expect(readout).to_contain_text(f"Loss {loss[99]:.4g}")
    await expect(readout).to_contain_text(f"router_loss {router[99]:.4g}")
    await console.page.get_by_role("button", name="Show the points as a table").click()
    first = console.page.get_by_role("region", name="Points of the committed steps").get_by_role("row").nth(1)
    await expect(first.get_by_role("cell").nth(2)).to_have_text(f"{loss[1]:.4g}")


async def test_repeated_steps_are_faint_and_marks_are_text(console: Console, job: str) -> None:
    await console.page.emulate_media(color_scheme="light")
    await console.open(f"jobs/{job}/curves?metrics=loss")
    chart = console.page.locator(".line-chart")
    await chart.locator("canvas").wait_for()
    await expect(console.page.get_by_text("faint: repeated steps")).to_be_visible()
    await expect(chart.locator("canvas")).to_be_visible()
    assert await chart.evaluate(_FAINT_PIXELS) > 30
    marks = console.page.get_by_role("list", name="Marks").get_by_role("listitem")
    await expect(marks).to_have_text(["┊ generation 2 from step 40 (start)", "▲ incident 1: rank_exit at step 60"])
    await console.open(f"jobs/{job}/curves?metrics=loss&from=70")
    await chart.locator("canvas").wait_for()
    await expect(console.page.get_by_text("faint: repeated steps")).to_have_count(0)
    assert await chart.evaluate(_FAINT_PIXELS) == 0


async def test_a_zoom_requests_the_range_from_the_server(console: Console, job: str) -> None:
    await console.open(f"jobs/{job}/curves?metrics=loss")
    over = console.page.locator(".line-chart .u-over")
    box = await over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    async with console.page.expect_request(lambda sent: "/curves?" in sent.url and "from_step" in sent.url) as sent:
        await console.page.mouse.move(box["x"] + box["width"] * 0.5, middle)
        await console.page.mouse.down()
        await console.page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=4)
        await console.page.mouse.up()
    requested = parse_qs(urlsplit((await sent.value).url).query)
    shown = parse_qs(urlsplit(console.page.url).query)
    assert (requested["from_step"], requested["to_step"]) == (shown["from"], shown["to"])
    assert 45 <= int(shown["from"][0]) < int(shown["to"][0]) <= 80
    await expect(console.page.get_by_label("From step")).to_have_value(shown["from"][0])
    await console.page.get_by_role("button", name="Show all steps").click()
    await expect(console.page.get_by_label("From step")).to_have_value("")


async def test_new_steps_appear_while_the_page_is_open(console: Console, live: Any, job: str, job_events: Any) -> None:
    await console.open(f"jobs/{job}/curves?metrics=loss")
    await expect(console.page.locator("figcaption")).to_contain_text("3")
    await live.report(job, job_events.step(2, 101, loss=77.5))
    await expect(console.page.locator("figcaption")).to_contain_text("77.5")


async def test_a_download_has_all_points(console: Console, job: str) -> None:
    await console.open(f"jobs/{job}/curves?metrics=loss")
    async with console.page.expect_download() as started:
        await console.page.get_by_role("button", name="Download CSV").click()
    download = await started.value
    lines = (await download.path()).read_text().splitlines()
    assert download.suggested_filename == "gpt-curves.csv"
    assert lines[0].startswith("metric,repeated_generation,step") and len(lines) == 1 + 100 + 20


async def test_a_job_without_steps_has_a_link_to_the_reason(console: Console, live: Any) -> None:
    job = (await live.submit(name="new"))["id"]
    await console.open(f"jobs/{job}/curves")
    await expect(console.page.get_by_role("heading", name="No steps yet")).to_be_visible()
    await console.page.get_by_role("link", name="why it has none").click()
    await expect(console.page).to_have_url(f"{live.url}/console/jobs/{job}/why")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_curves_are_accessible(console: Console, live: Any, job: str, scheme: Any, width: int) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.page.set_viewport_size({"width": width, "height": 800})
    await console.open(f"jobs/{job}/curves")
    await console.page.get_by_role("button", name="Show the points as a table").click()
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= width
    new = (await live.submit(name="new"))["id"]
    await console.open(f"jobs/{new}/curves")
    await console.page.get_by_role("heading", name="No steps yet").wait_for()
    assert await console.violations() == []
