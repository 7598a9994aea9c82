"""Tasks of operators that continue after a SIGKILL of the server: the page is open, and the task is not done."""

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import expect

from tests.support.console.killed_server import KilledServer
from tests.support.console.signed_in_page import WAIT_MS, Console

pytestmark = pytest.mark.browser

Task = Callable[[Console, KilledServer], Awaitable[None]]
TASKS: list[Task] = []


def task(function: Task) -> Task:
    TASKS.append(function)
    return function


@task
async def find_why_a_job_waits(console: Console, server: KilledServer) -> None:
    job = await server.submit("waits", ranks=4)
    hands = await console.open(f"jobs/{job}/why")
    await console.page.locator(".why-sentence").wait_for()
    await server.replace()
    await hands.click("button", "Check again")
    await expect(console.page.locator(".why-sentence")).to_contain_text("needs 4", timeout=WAIT_MS)
    why = await server.request("GET", f"/v1/jobs/{job}/why")
    advice = console.page.get_by_role("list", name="Remedies").get_by_role("listitem")
    await expect(advice).to_have_count(len(why["advice"]))


@task
async def read_the_log_of_a_rank(console: Console, server: KilledServer) -> None:
    job = await server.submit("talks")
    await server.wait_for_state(job, "RUNNING")
    text = "".join(f"line {number}\n" for number in range(3000))
    server.write_output(job, 1, text)
    hands = await console.open(f"jobs/{job}/logs")
    await hands.select("Rank", "1")
    await expect(console.page.locator(".logs-line").last).to_contain_text("line 2999", timeout=WAIT_MS)
    await server.replace()
    await hands.fill("Search", "line 1234")
    await hands.press("Enter")
    found = console.page.get_by_role("region", name="Lines found")
    await expect(found.get_by_role("link")).to_have_count(1, timeout=WAIT_MS)
    matches = (await server.request("GET", f"/v1/jobs/{job}/logs/search?text=line+1234"))["matches"]
    href = await found.get_by_role("link").get_attribute("href")
    assert href is not None and f"offset={matches[0]['offset']}" in href
    server.write_output(job, 1, text + "after the other server\n")
    await expect(console.page.locator(".logs-line").last).to_contain_text("after the other server", timeout=WAIT_MS)


@pytest.mark.parametrize("each", TASKS, ids=lambda each: each.__name__)
async def test_a_task_survives_the_end_of_its_server(
    each: Task, killed_console: Console, killed_server: KilledServer
) -> None:
    await each(killed_console, killed_server)
    assert killed_server.kills == 1
