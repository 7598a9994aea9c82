"""The tab Why of a job: the sentence, advice, conditions, the error, live changes, accessibility."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.shown_jobs import add_node, failed_job, job_with_ranks, waiting_job
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


async def why_of(live: Any, job: str) -> Any:
    return (await live.http.get(f"/v1/jobs/{job}/why")).json()


async def test_a_job_that_waits_has_its_place_in_the_queue(console: Console, live: Any) -> None:
    await waiting_job(live, "first")
    job = await waiting_job(live, "second")
    await console.open(f"jobs/{job}/why")
    await expect(console.page.get_by_role("heading", level=2).first).to_contain_text("Queued for")
    place = (await why_of(live, job))["queue_position"]
    await expect(console.page.locator(".stat", has_text="Jobs before it").locator("strong")).to_have_text(str(place))
    await expect(console.page.locator(".stat", has_text="Estimated start").locator("strong")).to_have_text("Not known")
    await expect(console.page.get_by_role("link", name="Nodes of the cluster")).to_be_visible()


async def test_sizes_that_would_start_now_are_named(console: Console, live: Any) -> None:
    add_node(live, "gpu-a", memory_bytes=2**36, free_memory_bytes=2**36)
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
    job = (await live.submit(name="wide", layout={"dp": 8}, training=training))["id"]
    await console.open(f"jobs/{job}/why")
    table = console.page.get_by_role("region", name="Predicted starts by size")
    await table.wait_for()
    cells = [await row.locator("td").all_inner_texts() for row in await table.locator("tbody tr").all()]
    answer = (await live.http.get(f"/v1/jobs/{job}/starts")).json()["starts"]
    assert [cell[0] for cell in cells] == [str(each["ranks"]) for each in answer] == ["8", "4"]
    assert [cell[1] for cell in cells] == ["later than in a week", "now"]
    assert cells[1][2].startswith("high") and "enough devices are free now" in cells[1][2]
    await expect(console.page.get_by_text("With 4 ranks, the job would start now.")).to_be_visible()
    await expect(table.get_by_role("link", name="Submit a copy")).to_be_visible()
    assert await console.violations() == []


async def test_a_failed_job_shows_its_error_and_leads_to_its_log(console: Console, live: Any) -> None:
    job = await failed_job(live)
    await console.open(f"jobs/{job}/why")
    await expect(console.page.get_by_role("heading", name="ValueError", exact=True)).to_be_visible()
    await expect(console.page.get_by_label("Traceback").locator("pre")).to_contain_text("line 7, in <module>")
    advice = console.page.get_by_role("list", name="Remedies").get_by_role("listitem")
    await expect(advice).to_have_count(len((await why_of(live, job))["advice"]))
    await console.page.get_by_role("link", name="Log of rank 1").click()
    await console.page.wait_for_url(f"**/jobs/{job}/logs?rank=1&stream=stderr")


async def test_a_slow_rank_is_a_condition_that_is_not_met(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    await console.open(f"jobs/{job}/why")
    row = console.page.locator(".why-list > li", has_text="EvenPace")
    await expect(row).to_contain_text("Not met")
    await expect(row).to_contain_text("rank 3 on node node-1 works 0.9 s a step, the others 0.1 s")


async def test_the_sentence_changes_when_it_is_checked_again(console: Console, live: Any) -> None:
    job = await waiting_job(live)
    await console.open(f"jobs/{job}/why")
    await expect(console.page.locator(".why-sentence")).to_contain_text("Queued")
    await live.http.post(f"/v1/jobs/{job}/cancel")
    await console.page.get_by_role("button", name="Check again").focus()
    await console.page.keyboard.press("Enter")
    await expect(console.page.locator(".why-sentence")).to_contain_text("Ended CANCELLED")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible(console: Console, live: Any, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    for job in (await waiting_job(live), await failed_job(live), await job_with_ranks(live)):
        await console.open(f"jobs/{job}/why")
        await console.page.locator(".why-sentence").wait_for()
        assert await console.violations() == []
