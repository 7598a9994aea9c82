"""The tab Layout of a job: the mesh, traffic, sizes and predictions agree with the API."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import trained_job

pytestmark = pytest.mark.browser


@pytest.fixture
async def job(live: Any, console: Console) -> dict[str, Any]:
    made = await trained_job(live)
    await console.open(f"jobs/{made['id']}/layout")
    await expect(console.page.get_by_role("heading", name="Size")).to_be_visible()
    return made


async def test_the_mesh_shows_each_rank_on_its_node_and_the_groups_of_an_axis(job: Any, console: Console) -> None:
    page = console.page
    drawing = page.locator(".layout-drawing")
    await expect(drawing.locator(".rank")).to_have_count(8)
    await expect(drawing.locator(".name")).to_have_text(["node-0", "node-1", "node-2", "node-3"])
    await expect(drawing.locator(".domain")).to_have_text(["rack r1", "rack r2"])
    await expect(drawing.locator(".letters")).to_have_text(list("AABBCCDD"))
    await page.get_by_role("radio", name="dp_shard").check()
    await expect(drawing.locator(".letters")).to_have_text(list("ABABABAB"))
    groups = page.get_by_role("list", name="Groups of dp_shard")
    await expect(groups.get_by_role("listitem")).to_have_text(
        ["A ranks 0, 2, 4, 6 4 nodes", "B ranks 1, 3, 5, 7 4 nodes"]
    )
    await groups.get_by_role("button", name="B ranks").click()
    await expect(drawing.locator(".line")).to_have_count(1)
    await expect(drawing.locator(".rank.faint")).to_have_count(4)
    await page.reload()  # the address has the axis and the group
    await expect(drawing.locator(".rank.faint")).to_have_count(4)


async def test_the_slider_has_the_legal_sizes_with_their_expected_speed(job: Any, live: Any, console: Console) -> None:
    sizes = (await live.http.get(f"/v1/jobs/{job['id']}/sizes")).json()
    page = console.page
    slider = page.get_by_role("slider", name="Number of ranks")
    assert [each["ranks"] for each in sizes["sizes"]] == [2 * dp for dp in range(1, 9)]
    await expect(slider).to_have_attribute("max", str(len(sizes["sizes"]) - 1))
    await expect(slider).to_have_attribute("aria-valuetext", "8 ranks, tp 2 × dp_shard 4")
    stats = page.locator(".layout-sizes .stats")
    await expect(stats).to_contain_text("500 ms")
    await expect(stats).to_contain_text("measured in generation 3")
    await expect(stats).to_contain_text("3.2 s")
    await slider.focus()
    await page.keyboard.press("Home")
    smallest = sizes["sizes"][0]
    await expect(stats).to_contain_text(smallest["basis"])
    milliseconds = 1000 * smallest["expected_step_s"]
    shown = f"{milliseconds / 1000:.3g} s" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"
    await expect(stats).to_contain_text(shown)


async def test_traffic_and_predictions_are_those_of_the_api(job: Any, live: Any, console: Console) -> None:
    sizes = (await live.http.get(f"/v1/jobs/{job['id']}/sizes")).json()
    current = next(each for each in sizes["sizes"] if each["layout"] == sizes["current"])
    rows = console.page.get_by_role("region", name="Traffic of a step").get_by_role("row")
    for row, axis in zip((await rows.all())[1:], current["axes"], strict=True):
        megabytes = float(f"{axis['wire_bytes'] / 1e6:.3g}")
        await expect(row).to_contain_text(axis["name"])
        await expect(row).to_contain_text(f"{megabytes:g} MB")
    shown = console.page.get_by_role("region", name="Predicted and measured").get_by_role("row").nth(1)
    await expect(shown).to_contain_text("500 ms")
    await expect(shown).to_contain_text("400 ms predicted (-20 %)")
    await expect(shown).to_contain_text("1.6 GB")
    await expect(shown).to_contain_text("2 GB predicted (+25 %)")


async def test_a_job_of_an_automatic_layout_explains_the_choice(live: Any, console: Console) -> None:
    from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes

    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    made = (await live.http.post("/v1/jobs", json=auto_json({"auto": {"ranks": 4}}))).json()
    report = (await live.http.get(f"/v1/jobs/{made['id']}/plan")).json()["report"]
    await console.open(f"jobs/{made['id']}/layout")
    plans = console.page.get_by_role("region", name="Plans, the fastest first").get_by_role("row")
    await expect(plans).to_have_count(len(report["plans"]) + 1)
    await expect(plans.nth(1)).to_contain_text(report["plans"][0]["why"])
    lost = console.page.get_by_role("region", name="Other kinds of layouts")
    await expect(lost).to_contain_text(report["lost"][0]["why"])
    await expect(console.page.get_by_role("heading", name="No ranks yet")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_tab_is_accessible(job: Any, live: Any, console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    assert await console.violations() == []
    await console.page.get_by_text("All 8 legal sizes").click()
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
    other = await live.submit(name="waits")
    await console.open(f"jobs/{other['id']}/layout")
    await expect(console.page.get_by_role("heading", name="No ranks yet")).to_be_visible()
    assert await console.violations() == []


async def test_a_job_that_does_not_exist(console: Console) -> None:
    await console.page.goto(f"{console.url}/console/jobs/job_0/layout")
    await expect(console.page.get_by_role("heading", name="Not found")).to_be_visible()
