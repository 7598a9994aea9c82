"""The overview: the sentence, what needs a person, devices, queue, incidents, goodput, changes."""

from typing import Any

import pytest
from playwright.async_api import expect

from regroup.service.domain.topology import Node
from regroup.service.store.rows.records import HELD, Condition
from regroup.service.store.schema.tables import incidents
from tests.support.console.signed_in_page import Console
from tests.support.inputs import held_devices

pytestmark = pytest.mark.browser


async def prepare(live: Any) -> str:
    """Prepare a job with devices, a goodput and an incident, a job that is held, and a job that waits."""
    live.cluster.add_node(Node("n0", "local-0", "10.0.0.1", cpus=4, free_cpus=4, gpus=4, free_gpus=4))
    now = live.services.clock()
    await held_devices.submit(live.store, "job_trains", now=now - 7200)
    held = held_devices.reservation("job_trains", "a", 3)
    await held_devices.allocate(live.store, live.lease, "job_trains", held, now=now - 3600)
    data = {"id": "i1", "cause": "rank 3 exited", "generation": 1, "at_step": 2, "steps_lost": 3}
    more = {"times": {"seen_s": now - 600}, "durations": {"total": 4.0}}
    await live.report("job_trains", ("incident", 1, {**data, **more}), status={"goodput": 0.9})
    async with live.store._database.write() as connection:  # reports of the double have times of 1970
        await connection.execute(incidents.update().values(time_s=now - 600))
    job = (await live.submit(name="holds"))["id"]
    condition = Condition(HELD, True, "user_error", "rank 0 ended with exit code 1", 0.0)
    await live.store.set_conditions(live.lease, job, [condition], now=now)
    await live.submit(name="waits")
    return job


async def test_what_needs_a_person_comes_first(live: Any, console: Console) -> None:
    job = await prepare(live)
    await console.open()
    await expect(console.page.get_by_text("1 job runs on 3 of 4 GPUs; 2 jobs wait.")).to_be_visible()
    (item,) = await console.page.locator(".overview-attention li").all()
    await expect(item).to_contain_text("Job holds: rank 0 ended with exit code 1")
    await expect(item).to_contain_text("release its nodes")
    await expect(console.page.get_by_role("img", name="4 GPUs by class")).to_be_visible()
    for text in ("starting 3", "idle 1", "closed 0"):
        await expect(console.page.locator(".share-bar")).to_contain_text(text)
    await expect(console.page.get_by_text("90 % of 3 device-hours")).to_be_visible()
    await item.get_by_role("link", name="Release nodes").click()
    await console.page.wait_for_url(f"**/jobs/{job}?action=release")


async def test_an_incident_opens_in_the_story_of_its_job(live: Any, console: Console) -> None:
    await prepare(live)
    await console.open()
    row = console.page.get_by_role("row").filter(has_text="rank 3 exited")
    for text in ("10 min", "4 s", "3"):
        await expect(row).to_contain_text(text)
    await row.get_by_role("link", name="job-trains #1").click()
    await console.page.wait_for_url("**/jobs/job_trains/story?incident=1")


async def test_the_page_follows_changes(live: Any, console: Console) -> None:
    await console.open()
    await expect(console.page.get_by_text("Nothing needs you now.")).to_be_visible()
    await live.submit(name="new")
    await expect(console.page.get_by_text("; 1 job waits.")).to_be_visible()
    await console.page.get_by_role("link", name="new", exact=True).click()
    await console.page.wait_for_url("**/why")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(live: Any, console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open()
    await expect(console.page.get_by_text("Nothing needs you now.")).to_be_visible()
    assert await console.violations() == []
    await prepare(live)
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open()
    await expect(console.page.get_by_text("1 thing needs you")).to_be_visible()
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
