"""The tab Spec and events of a job: YAML, differences, events, audit records and JSON agree with the API."""

import json
from typing import Any

import pytest
import yaml
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import SPEC, trained_job

pytestmark = pytest.mark.browser


@pytest.fixture
async def job(live: Any, console: Console) -> dict[str, Any]:
    made = await trained_job(live)
    await console.open(f"jobs/{made['id']}/spec")
    await expect(console.page.get_by_role("region", name="Spec as YAML")).to_contain_text("global_batch")
    return made


async def test_the_spec_is_shown_as_yaml_with_and_without_defaults(job: Any, console: Console) -> None:
    shown = console.page.get_by_role("region", name="Spec as YAML")
    await expect(shown).not_to_contain_text("termination_grace")
    own = yaml.safe_load(await shown.inner_text())
    assert (own["training"], own["layout"]) == (
        {key: value for key, value in SPEC["training"].items() if key != "micro_batch"} | own["training"],
        SPEC["layout"],
    )
    await console.page.get_by_role("checkbox", name="Show defaults").check()
    await expect(shown).to_contain_text("termination_grace")
    assert yaml.safe_load(await shown.inner_text()) == job["spec"]
    assert await shown.locator(".dim").count() > 20


async def test_the_events_are_those_of_the_api_and_follow(job: Any, live: Any, console: Console) -> None:
    page = console.page
    events = (await live.http.get(f"/v1/jobs/{job['id']}/events")).json()["events"]
    table = page.get_by_role("region", name="Events", exact=True).get_by_role("row")
    await expect(table).to_have_count(len(events) + 1)
    incident = page.get_by_role("row", name="SIGKILL of rank 5")
    await expect(incident).to_contain_text("SIGKILL of rank 5, at step 10, recovery: disk, 3.2 s in all")
    await page.get_by_label("Kind").select_option("checkpoint")
    await expect(table).to_have_count(3)
    await live.report(job["id"], ("checkpoint", 3, checkpoint(12)))
    await expect(table).to_have_count(4)
    await expect(table.nth(1)).to_contain_text("step 12, 5 B, 1 s")
    await page.get_by_label("Search").fill("step 8")
    await expect(table).to_have_count(2)
    await page.get_by_label("Search").fill("no such text")
    await page.get_by_role("button", name="Show all events").click()
    await expect(table).to_have_count(len(events) + 2)


def checkpoint(step: int) -> dict[str, Any]:
    data = {"uri": f"file:///s/{step}", "size_bytes": 5, "files": 1, "duration_s": 1.0, "stall_s": 0.0}
    return {"step": step, "generation": 3, **data}


async def test_the_differences_from_another_job_are_those_of_the_api(job: Any, live: Any, console: Console) -> None:
    changed = {**SPEC, "name": "other", "seed": 7}
    other = (await live.submit(**changed))["id"]
    found = (await live.http.get(f"/v1/jobs/{job['id']}/diff", params={"with": other})).json()["differences"]
    assert {each["path"] for each in found} >= {"seed", "name"}
    await console.page.get_by_role("combobox", name="Other job").fill(other)
    await console.page.get_by_role("button", name="Compare", exact=True).click()
    rows = console.page.get_by_role("region", name="Fields that differ").get_by_role("row")
    await expect(rows).to_have_count(len(found) + 1)
    await expect(console.page.get_by_role("row", name="seed")).to_have_text("seed07")


async def test_requests_that_changed_the_job_are_shown(job: Any, live: Any, console: Console) -> None:
    await live.http.put(f"/v1/jobs/{job['id']}/checkpoints/4/pin")
    await console.page.get_by_role("heading", name="Requests that changed it").click()
    records = (await live.http.get("/v1/audit", params={"object": job["id"]})).json()["records"]
    rows = console.page.get_by_role("region", name="Requests that changed the job").get_by_role("row")
    await expect(rows).to_have_count(len(records) + 1)
    await expect(rows.nth(1)).to_contain_text("checkpoints.pin")


async def test_the_job_is_shown_as_json(job: Any, console: Console) -> None:
    await console.page.get_by_role("heading", name="The job as JSON").click()
    shown = await console.page.get_by_role("region", name="The job as JSON").inner_text()
    assert json.loads(shown)["spec"] == job["spec"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_tab_is_accessible(job: Any, console: Console, scheme: Any) -> None:
    page = console.page
    await page.emulate_media(color_scheme=scheme)
    for name in ("Requests that changed it", "The job as JSON"):
        await page.get_by_role("heading", name=name).click()
    await page.get_by_role("checkbox", name="Show defaults").check()
    assert await console.violations() == []
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await console.violations() == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.get_by_role("button", name="Clone and edit").click()
    await expect(page.get_by_role("dialog")).to_contain_text("A new job gpt-copy")
    assert await console.violations() == []


async def test_a_wrong_change_is_explained_before_it_is_submitted(job: Any, live: Any, console: Console) -> None:
    page = console.page
    await page.get_by_role("button", name="Clone and edit").click()
    await page.get_by_label("Changed fields").fill("training.micro_batch=3")
    await expect(page.get_by_role("alert")).to_contain_text("micro_batch")
    await expect(page.get_by_role("button", name="Submit the copy")).to_be_disabled()
    await page.get_by_label("Changed fields").fill("faster")
    await expect(page.get_by_role("alert")).to_contain_text('"faster" is not a path')
    assert [each["name"] for each in (await live.http.get("/v1/jobs")).json()["jobs"]] == ["gpt"]
