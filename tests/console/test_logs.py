"""The tab Logs of a job: the end and the beginning, search, places, live lines, all ranks, accessibility."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.shown_jobs import talking_job, waiting_job
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


def lines_of(console: Console) -> Any:
    return console.page.locator(".logs-line")


async def test_the_end_is_shown_and_new_lines_appear(console: Console, live: Any) -> None:
    job = await talking_job(live)
    await console.open(f"jobs/{job}/logs?rank=2")
    await expect(lines_of(console).last).to_contain_text("end")
    live.cluster.logs[job, 2, 2, "stdout"] += "a new line\n"
    await expect(lines_of(console).last).to_contain_text("a new line")
    await expect(lines_of(console).last).to_be_in_viewport()


async def test_output_is_text_with_colours_and_never_a_page(console: Console, live: Any) -> None:
    job = await talking_job(live)
    await console.open(f"jobs/{job}/logs?rank=2")
    line = lines_of(console).filter(has_text="loss is NaN")
    await expect(line.locator("code")).to_have_text("loss is NaN <b>here</b>")
    await expect(line.locator(".logs-red")).to_have_text("loss is NaN")


async def test_a_place_is_a_link(console: Console, live: Any) -> None:
    job = await talking_job(live)
    offset = live.cluster.logs[job, 2, 2, "stdout"].index("line 1500\n")
    await console.open(f"jobs/{job}/logs?rank=2&generation=2&stream=stdout&offset={offset}")
    current = console.page.locator(".logs-line[aria-current]")
    await expect(current).to_contain_text("line 1500")
    await expect(current).to_be_in_viewport()
    assert await current.locator("a").get_attribute("href") == console.page.url.removeprefix(console.url)


async def test_a_search_finds_all_ranks_and_generations(console: Console, live: Any) -> None:
    job = await talking_job(live)
    await console.open(f"jobs/{job}/logs?rank=all")
    await console.page.get_by_label("Search", exact=True).fill("nan")
    await console.page.keyboard.press("Enter")
    found = console.page.get_by_role("region", name="Lines found")
    await expect(found).to_contain_text("2 lines with")
    await found.get_by_role("link", name="rank 2, stdout, generation 2").click()
    await expect(console.page.locator(".logs-line[aria-current]")).to_contain_text("loss is NaN")
    await expect(console.page.locator(".logs-line[aria-current] mark").first).to_have_text("NaN")


async def test_a_large_output_is_read_in_parts(console: Console, live: Any) -> None:
    job = await talking_job(live)
    whole = "".join(f"{number:07} {'x' * 90}\n" for number in range(100_000))  # 10 MB
    live.cluster.logs[job, 2, 2, "stdout"] = whole
    await console.open(f"jobs/{job}/logs?rank=2")
    await expect(lines_of(console).last).to_contain_text("0099999")
    assert await lines_of(console).count() <= 4000
    await console.page.get_by_role("button", name="Start", exact=True).click()
    await expect(lines_of(console).first).to_contain_text("0000000")
    await console.page.get_by_role("log", name="Output").evaluate("box => { box.scrollTop = box.scrollHeight }")
    await expect(lines_of(console).filter(has_text="0003000")).to_have_count(1)
    await console.page.get_by_role("button", name="End", exact=True).click()
    await expect(lines_of(console).last).to_contain_text("0099999")
    before = await lines_of(console).first.inner_text()
    await console.page.get_by_role("log", name="Output").evaluate("box => { box.scrollTop = 0 }")
    await expect(lines_of(console).first).not_to_have_text(before)


async def test_all_ranks_in_one_list(console: Console, live: Any) -> None:
    job = await talking_job(live, 10)
    await console.open(f"jobs/{job}/logs")
    await console.page.get_by_label("Rank", exact=True).select_option("all")
    await expect(lines_of(console).filter(has_text="rank 0 begins")).to_have_count(1)
    await expect(lines_of(console).filter(has_text="end")).to_have_count(1)
    live.cluster.logs[job, 2, 1, "stderr"] = "rank 1 warns\n"
    await expect(lines_of(console).last).to_contain_text("rank 1 warns")


async def test_the_output_is_saved_as_a_file(console: Console, live: Any, tmp_path: Path) -> None:
    job = await talking_job(live)
    await console.open(f"jobs/{job}/logs?rank=2")
    async with console.page.expect_download() as waiting:
        await console.page.get_by_role("button", name="Download").click()
    saved = await waiting.value
    assert saved.suggested_filename == "talks-g2-rank2.stdout.log"
    await saved.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == live.cluster.logs[job, 2, 2, "stdout"]


async def test_a_rank_that_printed_nothing(console: Console, live: Any) -> None:
    job = await waiting_job(live)
    await console.open(f"jobs/{job}/logs")
    await expect(console.page.get_by_role("heading", name="Rank 0 printed nothing to stdout")).to_be_visible()
    await console.page.get_by_role("button", name="Show stderr").click()
    await expect(console.page.get_by_role("heading", name="Rank 0 printed nothing to stderr")).to_be_visible()


async def test_an_error_leads_to_another_try(console: Console, live: Any) -> None:
    job = await talking_job(live)
    refused = {"status": 403, "code": "forbidden", "detail": "kim does not have the permission logs", "title": "no"}
    pattern = f"**/v1/jobs/{job}/logs?*"
    await console.page.route(pattern, lambda route: route.fulfill(status=403, body=json.dumps(refused)))
    await console.open(f"jobs/{job}/logs?rank=2")
    await expect(console.page.get_by_role("alert")).to_contain_text("kim does not have the permission logs")
    await console.page.unroute(pattern)
    await console.page.get_by_role("button", name="Try again").click()
    await expect(lines_of(console).last).to_contain_text("end")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible(console: Console, live: Any, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    job = await talking_job(live, 30)
    for query in ("?rank=2", "?rank=2&text=nan", "?rank=all", "?rank=3", "?rank=2&offset=0&wrap=yes"):
        await console.open(f"jobs/{job}/logs{query}")
        await console.page.locator(".logs-line, .logs .state h2").first.wait_for()
        assert await console.violations() == [], query
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
