"""A change that is sent while no server answers: the page shows it, keeps the input, and the change is done once."""

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.support.console.killed_server import KilledServer
from tests.support.console.signed_in_page import WAIT_MS, Console

if TYPE_CHECKING:
    from playwright.async_api import Locator, Request, Route

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


class CopyDialog:
    """A dialog that submits a copy of the job `first`, up to its last button."""

    def __init__(self, console: Console, server: KilledServer) -> None:
        self.page, self._console, self._server = console.page, console, server
        self.keys = record_keys(console, "/v1/jobs")

    @property
    def dialog(self) -> "Locator":
        return self.page.get_by_role("dialog")

    async def open(self) -> None:
        job = await self._server.submit("first")
        self._hands = await self._console.open(f"jobs/{job}/spec")
        await self._hands.click("button", "Clone and edit")
        await self._hands.fill("Name", "the-copy")
        await expect(self.dialog).to_contain_text("A new job the-copy")

    async def submit(self) -> None:
        """Press the button while no server answers."""
        await self._hands.click("button", "Submit the copy")
        await expect(self.dialog).to_contain_text(NOTICE)

    async def expect_one_copy(self) -> None:
        """Start the server, and check that the change was sent again and done once."""
        await self._server.start()
        await expect(self.page.locator("h1")).to_have_text("the-copy", timeout=LONG_MS)
        assert len(self.keys) > 1 and len(set(self.keys)) == 1 and self.keys[0], "it was sent again, with its key"
        names = [each["name"] for each in (await self._server.request("GET", "/v1/jobs"))["jobs"]]
        assert sorted(names) == ["first", "the-copy"]


@pytest.fixture
def copy(killed_console: Console, killed_server: KilledServer) -> CopyDialog:
    return CopyDialog(killed_console, killed_server)


async def test_a_copy_of_a_job_is_submitted_once_after_the_server_is_back(
    copy: CopyDialog, killed_server: KilledServer
) -> None:
    await copy.open()
    await killed_server.kill()
    await copy.submit()
    connection = copy.page.locator(".connection")
    await expect(connection).to_contain_text("Reconnecting to the server")
    await expect(copy.dialog.get_by_label("Name", exact=True)).to_have_value("the-copy")
    await expect(copy.dialog.get_by_role("button", name="Submit the copy")).to_be_disabled()
    await copy.expect_one_copy()
    await expect(connection).to_have_text("")


async def test_a_change_whose_answer_was_lost_with_the_server_is_done_once(
    copy: CopyDialog, killed_server: KilledServer
) -> None:
    await copy.open()
    lost = list[int]()

    async def lose_the_answer(route: "Route") -> None:
        """Let the server do the change, and kill it before the browser has the answer."""
        if route.request.method != "POST" or lost:
            await route.continue_()
            return
        lost.append((await route.fetch()).status)
        await killed_server.kill()
        await route.abort("connectionreset")

    await copy.page.route("**/v1/jobs?dry_run=false", lose_the_answer)
    await copy.submit()
    await copy.expect_one_copy()
    assert lost == [201]


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
