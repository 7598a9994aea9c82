"""The page about usage: its numbers are those of the API, its address keeps the view, it is accessible."""

import json
from datetime import datetime
from typing import Any

import pytest
from playwright.async_api import Route, expect

from tests.support.console.signed_in_page import Console
from tests.support.inputs.held_devices import allocate, end, reservation, submit

pytestmark = pytest.mark.browser
HOUR_S = 3600.0
PRICES = "{currency: EUR, device_hour: {H100: 2.5}}"


def month_start_s(offset: int = 0) -> float:
    """Return the start of this month, or of one before, in the zone of this machine."""
    now = datetime.now()  # the browser has the same zone
    months = now.year * 12 + now.month - 1 + offset
    return datetime(months // 12, months % 12 + 1, 1).timestamp()


@pytest.fixture
async def used(live: Any) -> None:
    """Last month: 4 H100-hours by ana in `vision`, 2 A100-hours by bob in `speech`. This month: 1 H100-hour by ana."""
    object.__setattr__(live.services.settings, "prices", PRICES)  # settings are frozen
    start_s = month_start_s(-1) + 24 * HOUR_S
    for job_id, user, project, ranks, kind, at_s in (
        ("j_one", "ana", "vision", 4, "H100", start_s),
        ("j_two", "bob", "speech", 2, "A100", start_s + 48 * HOUR_S),
        ("j_three", "ana", "vision", 1, "H100", month_start_s()),
    ):
        await submit(live.store, job_id, user, project=project)
        await allocate(live.store, live.lease, job_id, reservation(job_id, "a", ranks, kind), now=at_s)
        await end(live.store, live.lease, job_id, now=at_s + HOUR_S)


async def rows(console: Console) -> list[list[str]]:
    table = console.page.get_by_role("region", name="Use of devices by group")
    await table.wait_for()
    return [await each.locator("td").all_inner_texts() for each in await table.locator("tbody tr").all()]


async def test_the_rows_and_sums_are_those_of_the_api(console: Console, live: Any, used: None) -> None:
    await console.open("usage?window=last-month&by=project,user,class")
    assert await rows(console) == [
        ["vision", "ana", "H100", "4.00", "66.7 %", "10.00 EUR", ""],
        ["speech", "bob", "A100", "2.00", "33.3 %", "–", "2.00 h on A100"],
    ]
    window = {"from": month_start_s(-1), "to": month_start_s()}
    report = (await live.http.get("/v1/usage", params={**window, "group_by": "project,user,class"})).json()["rows"]
    assert sorted((row["project"], row["device_hours"], row["cost"]) for row in report) == [
        ("speech", 2.0, None),
        ("vision", 4.0, 10.0),
    ]
    footer = console.page.locator("tfoot td")
    assert await footer.all_inner_texts() == ["Total", "", "", "6.00", "", "10.00 EUR", "2.00 h"]
    legend = console.page.locator(".stacked-bars figcaption")
    await expect(legend).to_contain_text("vision 4.00 h")
    days = console.page.locator(".stacked-bars title")
    first = datetime.fromtimestamp(month_start_s(-1) + 24 * HOUR_S)
    assert f"{first:%Y-%m-%d}: vision 4.00 h" in await days.all_text_contents()


async def test_the_view_is_in_the_address(console: Console, used: None) -> None:
    await console.open("usage")
    await console.page.get_by_label("Window", exact=True).select_option("Last month")
    await console.page.get_by_label("User", exact=True).check()
    await console.page.get_by_label("Project", exact=True).and_(console.page.get_by_role("combobox")).fill("speech")
    await expect(console.page.locator("tbody tr td").first).to_have_text("speech")
    assert "window=last-month" in console.page.url and "by=project%2Cuser" in console.page.url
    await console.page.reload()
    assert await rows(console) == [["speech", "bob", "2.00", "100 %", "–", "2.00 h on A100"]]
    await console.page.get_by_label("Window", exact=True).select_option("Custom")
    await console.page.get_by_label("Last day", exact=True).fill(
        f"{datetime.fromtimestamp(month_start_s(-1)):%Y-%m-%d}"
    )
    await expect(console.page.get_by_role("heading", name="No device was used in this window")).to_be_visible()


async def test_budgets_have_their_state(console: Console, live: Any, used: None) -> None:
    for name, hours in (("vision", 100), ("speech", 2)):
        budget = {"device_hours": hours, "cost": None, "since": 0}
        assert (await live.http.put(f"/v1/projects/{name}", json={"budget": budget})).status_code == 200
    await console.open("usage")
    table = console.page.get_by_role("region", name="Budgets of projects")
    await expect(table.get_by_role("row", name="speech")).to_contain_text("Used up: jobs are suspended")
    await expect(table.get_by_role("row", name="vision")).to_contain_text("5.00 h")
    used_of = {each["name"]: each["budget_used"] for each in (await live.http.get("/v1/projects")).json()["projects"]}
    assert (used_of["vision"], used_of["speech"]) == (pytest.approx(5), pytest.approx(2))


async def test_an_empty_window_and_an_error_show_the_next_action(console: Console) -> None:
    await console.open("usage")
    await expect(console.page.get_by_role("link", name="Submit a job")).to_be_visible()
    assert await console.violations() == []
    problem = {"type": "about:blank", "title": "Forbidden", "status": 403, "code": "forbidden", "detail": "kim may not"}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=403, content_type="application/problem+json", body=json.dumps(problem))

    await console.page.route("**/v1/usage?*", refuse)
    await console.open("usage?window=7d")
    await expect(console.page.get_by_role("alert")).to_contain_text("kim may not")
    assert await console.violations() == []
    await console.page.unroute("**/v1/usage?*")
    await console.page.get_by_role("button", name="Try again").click()
    await expect(console.page.get_by_role("heading", name="No device was used in this window")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(console: Console, used: None, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("usage?window=last-month&by=project,user")
    await rows(console)
    assert await console.violations() == []
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await console.violations() == []


async def test_the_groups_are_chosen_with_the_keyboard(console: Console, used: None) -> None:
    await console.open("usage?window=last-month")
    await console.page.get_by_label("Class", exact=True).focus()
    await console.page.keyboard.press("Space")
    await expect(console.page.get_by_role("columnheader", name="Class")).to_be_visible()
    assert "class" in console.page.url
