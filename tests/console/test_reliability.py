"""The page about reliability: its numbers are those of the API, its links lead on, it is accessible."""

import json
import time
from typing import Any

import pytest
from playwright.async_api import Route, expect

from regroup.service.domain.topology import Node
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from tests.support.console.signed_in_page import Console
from tests.support.inputs.interruptions import interrupt, record_node_faults, submit_running
from tests.support.inputs.verdicts import verdict

pytestmark = pytest.mark.browser
HOUR_S = 3600.0


@pytest.fixture
async def incidents(live: Any) -> None:
    """Two failures and a resize of 4 devices in `vision`, a hang of 2 in `speech`; faults of a node."""
    start_s = time.time() - 2 * HOUR_S
    await submit_running(live.store, live.lease, "j_one", now=start_s, project="vision", goodput=0.9)
    await submit_running(live.store, live.lease, "j_two", now=start_s, ranks=2, project="speech", goodput=0.6)
    await interrupt(live.store, live.lease, "j_one", start_s + 60, 1, 1, 0, 3, 2, 2)
    await interrupt(live.store, live.lease, "j_one", start_s + 120, 4, 1, 0, 3, 2, 8, cause="rank 2 exited")
    await interrupt(live.store, live.lease, "j_one", start_s + 180, 0, 1, 0, 1, 1, 1, reason="resized")
    await interrupt(live.store, live.lease, "j_two", start_s + 240, 1800, reason="hang", cause="no rank moved on")
    live.cluster.add_node(Node("n" * 40, "gpu-7", "10.0.0.7", cpus=4, free_cpus=4))
    faults = (NodeEventKind.AGENT_LOST, NodeEventKind.LINK, NodeEventKind.DEVICE)
    await record_node_faults(live.store, live.lease, "gpu-7", time.time() - 60, *faults)


async def cells(console: Console, table: str) -> list[list[str]]:
    region = console.page.get_by_role("region", name=table, exact=True)
    await region.wait_for()
    return [await each.locator("td").all_inner_texts() for each in await region.locator("tbody tr").all()]


async def test_the_numbers_are_those_of_the_api(console: Console, live: Any, incidents: None) -> None:
    await console.open("reliability?window=1d")
    causes = await cells(console, "Causes of incidents")
    report = (await live.http.get("/v1/reliability", params={"from": time.time() - 24 * HOUR_S})).json()
    assert [(row[0].replace(" ", "_"), int(row[2])) for row in causes] == [
        (each["reason"], each["incidents"]) for each in report["causes"]
    ]
    assert causes[0] == ["hang", "failure", "1", "–", "–", "0", "1"]
    assert causes[1] == ["rank exit", "failure", "2", "13.5 s", "18 s", "0", "0.03"]
    assert causes[2][:2] == ["resized", "planned"]
    phases = await cells(console, "Time of each phase of the recoveries")
    assert phases[-1] == ["Restored → first step", "2", "5 s", "5 s", "8 s", "8 s"]
    summary = console.page.get_by_role("region", name="Summary")
    await expect(summary).to_contain_text("80 %")
    await expect(summary).to_contain_text("13.5 s")
    assert report["goodput"] == pytest.approx(0.8, abs=0.01) and report["recovery"]["mean_s"] == 13.5
    titles = await console.page.locator(".stacked-bars title").all_text_contents()
    assert len(titles) == len(report["bins"]) and sum("hang 1" in each for each in titles) == 1


async def test_nodes_and_incidents_lead_on(console: Console, incidents: None) -> None:
    await console.open("reliability?window=1d")
    nodes = console.page.get_by_role("region", name="Nodes with faults")
    await expect(nodes).to_contain_text("quarantined")  # the health of nodes is another request
    assert (await cells(console, "Nodes with faults"))[0][:4] == [
        "gpu-7",
        "quarantined",
        "3",
        "1 agent lost, 1 device, 1 link",
    ]
    link = console.page.get_by_role("link", name="gpu-7", exact=True)
    assert ((await link.get_attribute("href")) or "").endswith("/cluster?select=node%3Agpu-7")
    newest = await cells(console, "Newest incidents with their jobs")
    assert newest[0][1:3] == ["j-two #1", "speech"]
    await console.page.get_by_role("link", name="j-one #2").click()
    await console.page.wait_for_url("**/jobs/j_one/story?incident=2")


async def test_a_project_and_a_window_are_in_the_address(console: Console, incidents: None) -> None:
    await console.open("reliability?window=1d&project=speech")
    assert [row[0] for row in await cells(console, "Causes of incidents")] == ["hang"]
    await console.page.get_by_label("Project", exact=True).fill("nobody")
    await expect(console.page.get_by_role("heading", name="No incident in this window")).to_be_visible()
    assert "project=nobody" in console.page.url


async def test_rehearsals_show_their_verdicts(console: Console, live: Any) -> None:
    await live.http.post("/v1/chaos/verdicts", json=verdict())
    problems = ["I1: step 3 is missing", "I5: the job did not end"]
    causes = {"incidents": ["hang"] * 2, "recovery_actions": [None] * 2}
    failed = verdict("node-killed", number="16a", passed=False, problems=problems, recover_s=None, **causes)
    await live.http.post("/v1/chaos/verdicts", json=failed)
    await console.open("reliability")
    first, second = await cells(console, "Verdicts of rehearsals")
    assert first[1].startswith("16a node-killed seed 7") and first[2].startswith("failed")
    assert first[3:7] == ["hang → no action (2 times)", "200 ms", "–", "1"]
    assert second[2:6] == ["passed", "rank exit → respawn", "200 ms", "3.1 s"]
    await expect(console.page.get_by_text("2 verdicts, 1 failed")).to_be_visible()
    await expect(console.page.get_by_text("regroup chaos soak")).to_be_hidden()
    await console.page.get_by_text("2 violations").click()
    await expect(console.page.get_by_text(problems[1])).to_be_visible()
    assert await console.violations() == []
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_an_empty_window_and_an_error_show_the_next_action(console: Console) -> None:
    await console.open("reliability")
    await expect(console.page.get_by_text("regroup chaos run --all")).to_be_visible()
    await expect(console.page.get_by_role("heading", name="No incident in this window")).to_be_visible()
    assert await console.violations() == []
    problem = {"type": "about:blank", "title": "Forbidden", "status": 403, "code": "forbidden", "detail": "kim may not"}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=403, content_type="application/problem+json", body=json.dumps(problem))

    await console.page.route("**/v1/reliability?*", refuse)
    await console.open("reliability?window=7d")
    await expect(console.page.get_by_role("alert")).to_contain_text("kim may not")
    assert await console.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(console: Console, incidents: None, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("reliability?window=1d")
    await cells(console, "Newest incidents with their jobs")
    assert await console.violations() == []
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await console.violations() == []


async def test_the_window_is_chosen_with_the_keyboard(console: Console, incidents: None) -> None:
    await console.open("reliability")
    await console.page.get_by_label("Window", exact=True).focus()
    await console.page.keyboard.press("ArrowUp")
    await console.page.wait_for_url("**window=7d*")
    assert len(await cells(console, "Causes of incidents")) == 3
