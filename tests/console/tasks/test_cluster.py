"""Tasks of operators with nodes and racks."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.inputs.placed_jobs import add_rack, place_job

pytestmark = pytest.mark.browser


@operator_task("drain_a_rack")
async def test_drain_a_rack_at_17_00(live: Any, console: Console) -> None:
    names = add_rack(live, "rack-a", 2)
    add_rack(live, "rack-b", 1)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"rack-a-0": 4})
    hands = await console.open("cluster")
    await hands.click("button", "rack rack-a 2 nodes · 4/8")
    await hands.fill("Deadline", "17:00")
    await expect(console.page.locator(".cluster-moves")).to_contain_text("rack-a-0 → rack-b-0")
    await hands.click("button", "Drain 2 nodes")
    await expect(console.page.get_by_role("button", name="Cancel 2 drains")).to_be_visible()
    for name in names:
        drain = (await live.http.get(f"/v1/nodes/{name}/drain")).json()
        assert 0 < drain["deadline_at"] - drain["requested_at"] <= 86_400
        # The request was on its way for some time, so the deadline is a moment later.
        minute_s = round(drain["deadline_at"] / 60) * 60
        local = await console.page.evaluate("at => new Date(at * 1000).toTimeString().slice(0, 5)", minute_s)
        assert local == "17:00"
    assert (await live.http.get("/v1/nodes/rack-b-0/drain")).status_code == 404


@operator_task("close_and_open_a_node")
async def test_close_and_open_a_node(live: Any, console: Console) -> None:
    add_rack(live, "rack-c", 1)
    hands = await console.open("cluster")
    await hands.click("button", "rack-c-0, open, 0 of 4 cores in use")
    panel = console.page.get_by_role("complementary")
    await expect(panel).to_contain_text("The node gets no new ranks. No job runs on it.")
    await hands.click("button", "Cordon rack-c-0")
    await expect(panel.get_by_role("button", name="Uncordon rack-c-0")).to_be_enabled()
    assert await status(live) == "cordoned"
    await hands.click("button", "Uncordon rack-c-0")
    await expect(panel.get_by_role("button", name="Cordon rack-c-0", exact=True)).to_be_enabled()
    assert await status(live) == "open"


async def status(live: Any) -> str:
    (node,) = (await live.http.get("/v1/nodes")).json()["nodes"]
    return node["health"]["status"]
