"""The page of the cluster: map, filter, panel, drains with their moves, and the links between levels."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.inputs.placed_jobs import add_rack, place_job

pytestmark = pytest.mark.browser


async def two_racks(live: Any) -> str:
    """Add two racks, and a job on both nodes of the first."""
    add_rack(live, "rack-a", 2)
    add_rack(live, "rack-b", 2)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"rack-a-0": 3, "rack-a-1": 1})
    return job


async def test_the_map_shows_the_nodes_of_each_domain_with_their_jobs(live: Any, console: Console) -> None:
    job = await two_racks(live)
    await console.open("cluster")
    cells = console.page.locator(".cluster-node")
    await expect(cells).to_have_count(4)
    nodes = (await live.http.get("/v1/nodes")).json()["nodes"]
    for node in nodes:
        jobs = "".join(f": {each['name']} {each['ranks']}" for each in node["jobs"])
        used = node["cpus"] - node["free_cpus"]
        label = f"{node['name']}, open, {used:g} of {node['cpus']:g} cores in use{jobs}"
        await expect(console.page.get_by_role("button", name=label, exact=True)).to_have_count(1)
    await expect(console.page.locator(".cluster-job")).to_contain_text("gpt 4 ranks")
    await console.page.get_by_role("link", name="gpt").first.click()
    await console.page.wait_for_url(f"**/jobs/{job}")


async def test_the_filter_is_a_part_of_the_address(live: Any, console: Console) -> None:
    job = await two_racks(live)
    assert (await live.http.post("/v1/nodes/rack-b-0/drain", json={"deadline_s": "1h"})).status_code == 202
    cells = console.page.locator(".cluster-node")
    await console.open("cluster?filter=status:draining")
    await expect(cells).to_have_count(1)
    await console.page.get_by_role("searchbox").fill(f"rack:rack-a job:{job}")
    await expect(cells).to_have_count(2)
    assert "filter=rack" in console.page.url
    await console.page.get_by_role("searchbox").fill("no-such-node")
    await console.page.get_by_role("button", name="Show all nodes").click()
    await expect(cells).to_have_count(4)


async def test_arrow_keys_move_between_nodes_and_enter_selects_one(live: Any, console: Console) -> None:
    await two_racks(live)
    await console.open("cluster")
    await console.page.locator(".cluster-node[tabindex='0']").focus()
    await console.page.keyboard.press("ArrowRight")
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("complementary")).to_contain_text("node rack-a-1")
    assert "select=node%3Arack-a-1" in console.page.url
    await console.page.keyboard.press("End")
    await expect(console.page.locator(".cluster-node:focus")).to_have_attribute(
        "aria-label", "rack-b-1, open, 0 of 4 cores in use"
    )


async def test_the_panel_shows_the_health_and_the_faults_of_a_node(live: Any, console: Console) -> None:
    await two_racks(live)
    await live.http.post("/v1/nodes/rack-b-1/cordon", json={"reason": "fan is loud"})
    await console.open("cluster?select=node:rack-b-1")
    panel = console.page.get_by_role("complementary")
    (node,) = [each for each in (await live.http.get("/v1/nodes")).json()["nodes"] if each["name"] == "rack-b-1"]
    await expect(panel).to_contain_text(node["health"]["why"])
    await expect(panel).to_contain_text("cordoned")
    await expect(panel).to_contain_text("No job that you see uses it.")
    await expect(panel.get_by_role("button", name="Uncordon rack-b-1")).to_be_enabled()


async def test_a_drain_shows_the_moves_that_the_api_predicts(live: Any, console: Console) -> None:
    await two_racks(live)
    await console.open("cluster?select=rack:rack-a")
    request = {"also": ["rack-a-1"]}
    drain = (await live.http.post("/v1/nodes/rack-a-0/drain?dry_run=true", json=request)).json()
    moves = [f"{node['source']} → {node['target']}" for move in drain["moves"] for node in move["nodes"]]
    assert len(moves) == 2
    panel = console.page.get_by_role("complementary")
    for text in moves:
        await expect(panel.locator(".cluster-moves")).to_contain_text(text)
    await expect(panel.get_by_role("button", name="Drain 2 nodes")).to_be_disabled()
    await panel.get_by_label("Deadline").fill("soon")
    await expect(panel.get_by_role("button", name="Drain 2 nodes")).to_be_disabled()
    await panel.get_by_text("As commands").click()
    await expect(panel).to_contain_text("regroup drain rack-a-0 --deadline soon")


async def test_a_job_without_another_place_queues(live: Any, console: Console) -> None:
    await two_racks(live)
    for name in ("rack-b-0", "rack-b-1"):
        await live.http.post(f"/v1/nodes/{name}/cordon", json={})
    await console.open("cluster?select=node:rack-a-0")
    await expect(console.page.locator(".cluster-moves")).to_contain_text(
        "saves its last step and queues: no other node has capacity for 3 of 4 ranks"
    )


async def test_a_drain_is_cancelled_in_the_panel(live: Any, console: Console) -> None:
    await two_racks(live)
    await live.http.post("/v1/nodes/rack-a-0/drain", json={"deadline_s": "1h", "reason": "disks"})
    await console.open("cluster?select=node:rack-a-0")
    panel = console.page.get_by_role("complementary")
    await expect(panel).to_contain_text("Drained by a request: disks")
    await panel.get_by_role("button", name="Cancel the drain of rack-a-0").click()
    await expect(panel.get_by_role("button", name="Drain rack-a-0")).to_be_visible()
    assert (await live.http.get("/v1/nodes/rack-a-0/drain")).status_code == 404


async def test_links_show_the_values_of_the_topology(live: Any, console: Console) -> None:
    await two_racks(live)
    await console.open("cluster")
    rows = console.page.get_by_role("region", name="Links").locator("tbody tr")
    levels = (await live.http.get("/v1/topology")).json()["levels"]
    await expect(rows).to_have_count(len(levels))
    rack = next(each for each in levels if each["level"] == "rack")
    shown = await rows.nth([each["level"] for each in levels].index("rack")).inner_text()
    assert shown.split("\t")[1:3] == ["–", f"{rack['nominal']['bytes_per_s'] / 1e6:.3g} MB/s"]
    await expect(console.page.get_by_role("region", name="Links")).to_contain_text("regroup probe run")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_with_data_empty_and_with_an_error(
    live: Any, console: Console, scheme: Any
) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("cluster")
    await expect(console.page.get_by_role("heading", name="The cluster has no nodes")).to_be_visible()
    assert await console.violations() == []
    await two_racks(live)
    await live.http.post("/v1/nodes/rack-b-1/cordon", json={"reason": "fan"})
    await live.http.post("/v1/nodes/rack-b-0/drain", json={})
    for path in ("cluster", "cluster?select=rack:rack-a", "cluster?select=node:rack-b-1", "cluster?filter=nothing"):
        await console.open(path)
        await console.page.locator(".cluster-summary").wait_for()
        if "select" in path:
            await console.page.get_by_text("no new ranks").first.wait_for()
        assert await console.violations() == [], path
    await console.page.route("**/v1/topology", lambda route: route.fulfill(status=403, json={"detail": "not yours"}))
    await console.open("cluster")
    await expect(console.page.get_by_role("alert")).to_contain_text("not yours")
    assert await console.violations() == []


async def test_a_cluster_of_2048_nodes_stays_usable(live: Any, console: Console) -> None:
    for rack in range(64):
        add_rack(live, f"r{rack:02}", 32)
    await console.open("cluster")
    await expect(console.page.locator(".cluster-node")).to_have_count(2048)
    longest_ms = await console.page.evaluate(
        """async () => {
          const begin = performance.now();
          document.querySelectorAll(".cluster-node")[2000].click();
          while (!document.querySelector(".cluster-panel")) await new Promise(requestAnimationFrame);
          return performance.now() - begin;
        }"""
    )
    assert longest_ms < 1500, "a click on a node shows its panel at once"


async def test_a_phone_shows_the_panel_without_overflow(live: Any, console: Console) -> None:
    await two_racks(live)
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open("cluster?select=rack:rack-a")
    await console.page.locator(".cluster-moves").wait_for()
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
