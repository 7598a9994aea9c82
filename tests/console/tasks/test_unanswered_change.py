"""A change that is sent while no server answers: the page shows it, keeps the input, and the change is done once."""

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.support.console.killed_server import KilledServer
from tests.support.console.signed_in_page import WAIT_MS, Console

if TYPE_CHECKING:
    from playwright.async_api import Request, Route

pytestmark = pytest.mark.browser
LONG_MS = 2 * WAIT_MS
"""Limit of a wait during which the server starts."""
NOTICE = "The server does not answer. The change is sent again until it does, and takes effect once."


def record_keys(console: Console, path: str) -> list[str | None]:
    """Return a list that gets the idempotency key of each real attempt of a change."""
    keys = list[str | None]()

    def on_request(request: "Request") -> None:
        if request.method == "POST" and request.url.split("?")[0].endswith(path) and "dry_run=true" not in request.url:
            keys.append(request.headers.get("idempotency-key"))

    console.page.on("request", on_request)
    return keys


async def test_a_copy_of_a_job_is_submitted_once_after_the_server_is_back(
    killed_console: Console, killed_server: KilledServer
) -> None:
    page = killed_console.page
    job = await killed_server.submit("first")
    keys = record_keys(killed_console, "/v1/jobs")
    hands = await killed_console.open(f"jobs/{job}/spec")
    await hands.click("button", "Clone and edit")
    await hands.fill("Name", "the-copy")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("A new job the-copy")
    await killed_server.kill()
    await hands.click("button", "Submit the copy")
    await expect(dialog).to_contain_text(NOTICE)
    await expect(page.locator(".connection")).to_contain_text("Reconnecting to the server")
    await expect(dialog.get_by_label("Name", exact=True)).to_have_value("the-copy")
    await expect(dialog.get_by_role("button", name="Submit the copy")).to_be_disabled()
    await killed_server.start()
    await expect(page.locator("h1")).to_have_text("the-copy", timeout=LONG_MS)
    await expect(page.locator(".connection")).to_have_text("")
    assert len(keys) > 1 and len(set(keys)) == 1 and keys[0], "it was sent again, with its key"
    names = [each["name"] for each in (await killed_server.request("GET", "/v1/jobs"))["jobs"]]
    assert sorted(names) == ["first", "the-copy"]


async def test_a_change_whose_answer_was_lost_with_the_server_is_done_once(
    killed_console: Console, killed_server: KilledServer
) -> None:
    page = killed_console.page
    job = await killed_server.submit("first")
    keys = record_keys(killed_console, "/v1/jobs")
    hands = await killed_console.open(f"jobs/{job}/spec")
    await hands.click("button", "Clone and edit")
    await hands.fill("Name", "the-copy")
    await expect(page.get_by_role("dialog")).to_contain_text("A new job the-copy")
    lost = list[int]()

    async def lose_the_answer(route: "Route") -> None:
        """Let the server do the change, and kill it before the browser has the answer."""
        if route.request.method != "POST" or lost:
            await route.continue_()
            return
        lost.append((await route.fetch()).status)
        await killed_server.kill()
        await route.abort("connectionreset")

    await page.route("**/v1/jobs?dry_run=false", lose_the_answer)
    await hands.click("button", "Submit the copy")
    await expect(page.get_by_role("dialog")).to_contain_text(NOTICE)
    await killed_server.start()
    await expect(page.locator("h1")).to_have_text("the-copy", timeout=LONG_MS)
    assert lost == [201] and len(keys) > 1 and len(set(keys)) == 1
    names = [each["name"] for each in (await killed_server.request("GET", "/v1/jobs"))["jobs"]]
    assert sorted(names) == ["first", "the-copy"]


async def test_a_job_that_is_cancelled_while_no_server_answers_is_cancelled_once(
    killed_console: Console, killed_server: KilledServer
) -> None:
    page = killed_console.page
    job = await killed_server.submit("ends")
    await killed_server.wait_for_state(job, "RUNNING")
    hands = await killed_console.open(f"jobs/{job}?action=cancel")
    confirm = page.get_by_role("button", name="Cancel ends")
    await expect(confirm).to_be_enabled()
    await killed_server.kill()
    await hands.click("button", "Cancel ends")
    await expect(page.get_by_role("dialog")).to_contain_text(NOTICE)
    await killed_server.start()
    await expect(page.get_by_role("dialog")).to_have_count(0, timeout=LONG_MS)
    await killed_server.wait_for_state(job, "CANCELLED")
    records = (await killed_server.request("GET", f"/v1/audit?object={job}"))["records"]
    assert [each["action"] for each in records].count("jobs.cancel") == 1
