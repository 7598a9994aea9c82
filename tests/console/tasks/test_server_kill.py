"""Tasks of operators that continue after a SIGKILL of the server: the page is open, and the task is not done."""

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import expect

from tests.support.console.killed_server import KilledServer
from tests.support.console.signed_in_page import WAIT_MS, Console

pytestmark = pytest.mark.browser

Task = Callable[[Console, KilledServer], Awaitable[None]]
TASKS: list[Task] = []
LONG_MS = 2 * WAIT_MS
"""Limit of a wait during which the server starts."""


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
    await expect(console.page.locator(".why-sentence")).to_contain_text("needs 4", timeout=LONG_MS)
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
    await expect(console.page.locator(".logs-line").last).to_contain_text("line 2999", timeout=LONG_MS)
    await server.replace()
    await hands.fill("Search", "line 1234")
    await hands.press("Enter")
    found = console.page.get_by_role("region", name="Lines found")
    await expect(found.get_by_role("link")).to_have_count(1, timeout=LONG_MS)
    matches = (await server.request("GET", f"/v1/jobs/{job}/logs/search?text=line+1234"))["matches"]
    href = await found.get_by_role("link").get_attribute("href")
    assert href is not None and f"offset={matches[0]['offset']}" in href
    server.write_output(job, 1, text + "after the other server\n")
    await expect(console.page.locator(".logs-line").last).to_contain_text("after the other server", timeout=LONG_MS)


@task
async def cancel_a_job(console: Console, server: KilledServer) -> None:
    job = await server.submit("ends")
    await server.wait_for_state(job, "RUNNING")
    hands = await console.open("jobs")
    await hands.click("checkbox", "Select ends")
    await hands.click("button", "Cancel")
    await expect(console.page.get_by_role("button", name="Cancel ends")).to_be_enabled()
    await server.replace()
    await hands.click("button", "Cancel ends")
    row = console.page.get_by_role("row").filter(has=console.page.get_by_role("link", name="ends", exact=True))
    await expect(row).to_contain_text("CANCELLED", timeout=LONG_MS)
    await server.wait_for_state(job, "CANCELLED")


@task
async def suspend_and_resume_a_job(console: Console, server: KilledServer) -> None:
    job = await server.submit("pauses")
    await server.wait_for_state(job, "RUNNING")
    hands = await console.open(f"jobs/{job}?action=suspend")
    await hands.click("button", "Suspend pauses")
    state = console.page.locator("h1 ~ p")
    await expect(state).to_contain_text("SUSPENDED", timeout=LONG_MS)
    await server.replace()
    await hands.click("button", "Resume")
    await hands.click("button", "Resume pauses")
    await expect(state).to_contain_text("RUNNING", timeout=LONG_MS)
    await server.wait_for_state(job, "RUNNING")
    events = (await server.request("GET", f"/v1/jobs/{job}/events?limit=100"))["events"]
    states = [each["data"]["to"] for each in events if each["type"] == "state"]
    assert states.count("SUSPENDED") == 1 and "RUNNING" in states[states.index("SUSPENDED") :]


@task
async def raise_a_quota(console: Console, server: KilledServer) -> None:
    await server.request("PUT", "/v1/projects/vision", {"limit": 8, "weight": 2.0})
    await server.submit("waits", ranks=4, project="vision")
    hands = await console.open("queue")
    await hands.click("button", "Edit vision")
    await server.replace()
    await hands.fill("Limit (devices)", "16")
    dialog = console.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("at most 16", timeout=LONG_MS)
    await hands.click("button", "Save vision")
    await expect(dialog).to_have_count(0, timeout=LONG_MS)
    found = await server.request("GET", "/v1/projects/vision")
    assert (found["limit"], found["weight"]) == (16, 2.0)


@task
async def create_and_revoke_a_token(console: Console, server: KilledServer) -> None:
    await server.request("POST", "/v1/identities", {"subject": "kim", "kind": "user"})
    hands = await console.open("admin/tokens")
    await hands.click("button", "New token")
    await hands.fill("Identity", "kim")
    await server.replace()
    await hands.click("button", "Create token")
    shown = console.page.get_by_role("dialog").locator("pre.shown-once")
    await expect(shown).to_be_visible(timeout=LONG_MS)
    (made,) = (await server.request("GET", "/v1/tokens?subject=kim"))["tokens"]
    value = (await shown.inner_text()).strip()
    assert await server.is_accepted(value)
    hands = await console.open("admin/tokens")
    await hands.click("button", f"Revoke {made['name']}")
    await hands.click("button", "Revoke token")
    await expect(console.page.get_by_role("cell", name="revoked")).to_be_visible(timeout=LONG_MS)
    assert not await server.is_accepted(value)


@pytest.mark.parametrize("each", TASKS, ids=lambda each: each.__name__)
async def test_a_task_survives_the_end_of_its_server(
    each: Task, killed_console: Console, killed_server: KilledServer
) -> None:
    await each(killed_console, killed_server)
    assert killed_server.kills == 1
