"""The page of simulations: the scenario of the address, its summary, and the starts of jobs."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.inputs.placed_jobs import add_rack, place_job

pytestmark = pytest.mark.browser


async def full_rack(live: Any) -> list[str]:
    """Fill a rack of one node, and let two jobs wait for it; return their ids."""
    add_rack(live, "r1", 1)
    runs = (await live.submit(name="runs", layout={"dp": 4}))["id"]
    await place_job(live, runs, {"r1-0": 4})
    return [(await live.submit(name=f"waits-{n}", layout={"dp": 4}, max_duration="1h"))["id"] for n in range(2)]


async def test_the_result_is_that_of_the_api(live: Any, console: Console) -> None:
    await full_rack(live)
    await console.open("what-if?add=2")
    found = (await live.http.post("/v1/what-if", json={"add_nodes": {"count": 2}})).json()
    await expect(console.page.locator(".what-if-summary")).to_have_text(found["summary"])
    assert found["summary"].startswith("With 2 more nodes, the median wait falls from")
    rows = console.page.get_by_role("region", name="Starts of jobs").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("its max_duration")
    waits = console.page.get_by_role("region", name="Waits of projects").locator("tbody tr")
    texts = (await waits.inner_text()).split("\t")
    assert texts[:2] == ["default", str(found["projects"]["default"]["jobs"])]
    assert texts[4] == str(found["projects"]["default"]["earlier"])


async def test_fields_change_the_address_and_the_command(live: Any, console: Console) -> None:
    first, _ = await full_rack(live)
    await console.open("what-if")
    await console.page.get_by_label("Add nodes").fill("8")
    await expect(console.page.locator(".what-if-summary")).to_contain_text("With 8 more nodes")
    await console.page.get_by_label("Change quotas").fill("default.limit")
    await expect(console.page.get_by_role("alert")).to_contain_text("write for example vision.limit=64")
    await console.page.get_by_label("Change quotas").fill("default.limit=4")
    await console.page.get_by_role("button", name="cancel waits-0 in the scenario").click()
    await expect(console.page.locator(".what-if-summary")).to_contain_text("1 job cancelled")
    assert f"cancel={first}" in console.page.url and "add=8" in console.page.url
    await console.page.get_by_text("As commands").click()
    await expect(console.page.locator("pre").first).to_have_text(
        f"regroup what-if --add-nodes 8 --quota default.limit=4 --cancel {first}"
    )
    await console.page.get_by_role("button", name="Clear").click()
    await expect(console.page.locator(".what-if-summary")).to_contain_text("Without a change")


async def test_an_unknown_rack_is_explained(live: Any, console: Console) -> None:
    await full_rack(live)
    await console.open("what-if?drain=rack:r9")
    await expect(console.page.get_by_role("alert")).to_contain_text("no such node or domain")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_with_data_empty_and_with_an_error(
    live: Any, console: Console, scheme: Any
) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("what-if")
    await expect(console.page.get_by_role("heading", name="No job waits")).to_be_visible()
    assert await console.violations() == []
    await full_rack(live)
    await console.open("what-if?add=2")
    await console.page.locator(".what-if-axis").first.wait_for()
    assert await console.violations() == []
    await console.open("what-if?quota=wrong")
    await console.page.get_by_role("alert").wait_for()
    assert await console.violations() == []


async def test_a_phone_shows_the_page_without_overflow(live: Any, console: Console) -> None:
    await full_rack(live)
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open("what-if?add=2")
    await console.page.locator(".what-if-axis").first.wait_for()
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
