"""The tab Ranks of a job: grid, table, selection, stacks, terminal, many ranks, accessibility."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.shown_jobs import job_with_ranks, waiting_job
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


async def test_the_slow_rank_is_named_first_with_its_stacks(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    await console.open(f"jobs/{job}/ranks")
    summary = console.page.get_by_role("list", name="Ranks that delay the others")
    await expect(summary).to_contain_text("Rank 3 on node-1 works longer than the others")
    await summary.get_by_role("button", name="Stacks of rank 3").click()
    outlier = console.page.get_by_role("region", name="Stacks of 3", exact=True)
    await expect(outlier).to_contain_text("Differs")
    await expect(outlier.locator(".ranks-different")).to_have_text("≠   File tokens.py, line 12, in read\n")
    await expect(console.page.get_by_role("region", name="Stacks of 0-2")).to_contain_text("all_reduce")
    assert "ranks=3" in console.page.url and "view=stacks" in console.page.url


async def test_the_table_is_sorted_by_work(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    await console.open(f"jobs/{job}/ranks")
    rows = console.page.locator(".ranks-table tbody tr")
    await expect(rows).to_have_count(4)
    await console.page.get_by_label("Sort by").select_option("work")
    await expect(rows.first).to_contain_text("900 ms")
    await expect(rows.first).to_contain_text("Slow")


async def test_ranks_are_selected_with_the_keyboard(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    await console.open(f"jobs/{job}/ranks")
    await console.page.locator("[data-rank='0']").focus()
    for key in ("Space", "ArrowRight", "ArrowRight", "Shift+Enter"):
        await console.page.keyboard.press(key)
    await expect(console.page.get_by_role("heading", name="Selected: 0-2")).to_be_visible()
    await expect(console.page.locator("[data-rank='2']")).to_have_attribute("aria-pressed", "true")
    await console.page.reload()
    await expect(console.page.get_by_role("heading", name="Selected: 0-2")).to_be_visible()


async def test_a_command_runs_next_to_a_rank(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    live.cluster.outputs = [("stdout", b"<b>ok</b>\n"), ("stderr", "wörd\n".encode()), {"code": 3, "why": "exited"}]
    await console.open(f"jobs/{job}/ranks?ranks=2&view=terminal")
    await console.page.get_by_label("Command", exact=True).fill("sh -c 'exit 3'")
    await console.page.get_by_label("Command", exact=True).press("Enter")
    screen = console.page.get_by_role("log", name="Output of commands")
    await expect(screen).to_contain_text("exit code 3")
    await expect(screen).to_contain_text("<b>ok</b>")
    await expect(screen.locator(".ranks-stderr")).to_have_text("wörd\n")
    (order,) = live.cluster.orders
    assert (order["command"], order["rank"]) == (["sh", "-c", "exit 3"], 2)
    await console.page.get_by_label("Command", exact=True).press("ArrowUp")
    await expect(console.page.get_by_label("Command", exact=True)).to_have_value("sh -c 'exit 3'")


async def test_a_command_is_stopped(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    live.cluster.outputs = [("stdout", b"begins\n")]
    await console.open(f"jobs/{job}/ranks?view=terminal")
    await console.page.get_by_label("Command", exact=True).fill("sleep 100")
    await console.page.get_by_role("button", name="Run", exact=True).click()
    screen = console.page.get_by_role("log", name="Output of commands")
    await expect(screen).to_contain_text("begins")
    await console.page.get_by_role("button", name="Stop").click()
    await expect(screen).to_contain_text("stopped")


async def test_a_refused_command_shows_the_reason(console: Console, live: Any) -> None:
    job = await job_with_ranks(live)
    await console.open(f"jobs/{job}/ranks?view=terminal")
    await console.page.get_by_label("On rank").fill("9")
    await console.page.get_by_label("Command", exact=True).fill("ls")
    await console.page.get_by_label("Command", exact=True).press("Enter")
    await expect(console.page.get_by_role("log", name="Output of commands")).to_contain_text("has no rank 9")


async def test_a_thousand_ranks_are_usable(console: Console, live: Any) -> None:
    job = await job_with_ranks(live, 1024, slow=700)
    await console.open(f"jobs/{job}/ranks")
    await expect(console.page.locator(".ranks-grid [data-rank]")).to_have_count(1024)
    assert await console.page.locator(".ranks-table tbody tr").count() < 80
    await expect(console.page.get_by_role("list", name="Legend")).to_contain_text("Slow 1")
    await console.page.get_by_label("Sort by").select_option("factor")
    await expect(console.page.locator(".ranks-table tbody tr").first).to_contain_text("700")


async def test_a_job_without_ranks_leads_to_the_reason(console: Console, live: Any) -> None:
    job = await waiting_job(live)
    await console.open(f"jobs/{job}/ranks")
    await console.page.get_by_role("link", name="See why it waits").click()
    await console.page.wait_for_url(f"**/jobs/{job}/why")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible(console: Console, live: Any, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    job = await job_with_ranks(live)
    for query in ("", "?ranks=3,1&view=stacks", "?ranks=1&view=terminal"):
        await console.open(f"jobs/{job}/ranks{query}")
        await console.page.locator(".ranks-grid").wait_for()
        if "stacks" in query:
            await console.page.locator(".ranks-stacks").wait_for()
        assert await console.violations() == [], query
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
