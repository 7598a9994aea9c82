"""Tasks of operators in the tabs Why, Ranks and Logs of a job."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.shown_jobs import job_with_ranks, talking_job, waiting_job
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


async def get(live: Any, path: str) -> Any:
    answer = await live.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@operator_task("find_why_a_job_waits")
async def test_find_why_a_job_waits(console: Console, live: Any) -> None:
    job = await waiting_job(live)
    hands = await console.open(f"jobs/{job}/why")
    await hands.click("button", "Check again")
    sentence = await console.page.locator(".why-sentence").inner_text()
    why = await get(live, f"/v1/jobs/{job}/why")
    assert sentence.startswith("Queued for ") and sentence.partition(" s")[2] == why["summary"].partition(" s")[2]
    shown = await console.page.locator(".stat strong").all_inner_texts()
    assert shown[0] == str(why["queue_position"])


@operator_task("predict_the_start_of_a_job")
async def test_predict_the_start_of_a_job(console: Console, live: Any) -> None:
    await waiting_job(live, "earlier")
    job = await waiting_job(live, "later")
    hands = await console.open(f"jobs/{job}/story")
    await hands.click("link", "Why")
    why = await get(live, f"/v1/jobs/{job}/why")
    await expect(console.page.locator(".stat", has_text="Jobs before it")).to_contain_text(str(why["queue_position"]))
    expected = "Not known" if why["estimated_start"] is None else why["estimated_start"][11:16]
    await expect(console.page.locator(".stat", has_text="Estimated start")).to_contain_text(expected)


@operator_task("find_the_slow_rank")
async def test_find_the_slow_rank(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    hands = await console.open(f"jobs/{job}/ranks")
    await hands.click("button", "Stacks of rank 3")
    outlier = console.page.get_by_role("region", name="Stacks of 3", exact=True)
    await expect(outlier).to_contain_text("tokens.py, line 12")
    found = await get(live, f"/v1/jobs/{job}/ranks")
    assert [each["rank"] for each in found["ranks"] if each["state"] == "slow"] == [3]


@operator_task("read_the_log_of_a_rank")
async def test_read_the_log_of_a_rank(console: Console, live: Any) -> None:
    job = await talking_job(live)
    hands = await console.open(f"jobs/{job}/logs")
    await hands.select("Rank", "2")
    await hands.fill("Search", "NaN")
    await hands.press("Enter")
    found = console.page.get_by_role("region", name="Lines found").get_by_role("link")
    await expect(found).to_have_count(1)
    (match,) = (await get(live, f"/v1/jobs/{job}/logs/search?text=NaN&rank=2"))["matches"]
    href = await found.get_attribute("href")
    assert href is not None and f"offset={match['offset']}" in href
    part = await live.http.get(f"/v1/jobs/{job}/logs?rank=2&offset={match['offset']}&limit=100")
    assert part.text.startswith(match["line"])
