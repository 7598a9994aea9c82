"""Tasks of operators with quotas and budgets."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.inputs.placed_jobs import add_rack

pytestmark = pytest.mark.browser


@operator_task("raise_a_quota")
async def test_raise_a_quota(live: Any, console: Console) -> None:
    add_rack(live, "rack-a", 4)
    await live.http.put("/v1/projects/vision", json={"limit": 8, "weight": 2.0, "spares": 1})
    for number in range(3):
        await live.submit(name=f"waits-{number}", project="vision", layout={"dp": 4}, max_duration="1h")
    hands = await console.open("queue")
    await hands.click("button", "Edit vision")
    await hands.fill("Limit (devices)", "16")
    dialog = console.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("at most 16")
    await expect(dialog).to_contain_text("With other quotas of vision, ")
    await hands.click("button", "Save vision")
    await expect(dialog).to_have_count(0)
    found = (await live.http.get("/v1/projects/vision")).json()
    assert (found["limit"], found["weight"], found["spares"]) == (16, 2.0, 1)


@operator_task("set_budgets")
async def test_set_the_budget_of_a_project(live: Any, console: Console) -> None:
    await live.http.put("/v1/projects/frugal", json={"guaranteed": 2})
    hands = await console.open("queue")
    await hands.click("button", "Edit frugal")
    await hands.fill("Budget", "100")
    await expect(console.page.get_by_role("dialog")).to_contain_text("0 of the budget of 100 is used.")
    await hands.click("button", "Save frugal")
    await expect(console.page.get_by_role("row", name="frugal")).to_contain_text("0 of 100 device-hours")
    found = (await live.http.get("/v1/projects/frugal")).json()
    assert found["budget"]["device_hours"] == 100 and found["guaranteed"] == 2
