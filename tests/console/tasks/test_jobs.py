"""Operator tasks about jobs, in Chromium."""

from typing import Any

import pytest
from playwright.async_api import expect

from regroup.service.store.schema.tables import incidents
from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser
SPEC = "name: mine\nworkload:\n  kind: script\n  entrypoint: /data/train.py\nlayout: {dp: 2}\n"


async def get(live: Any, path: str) -> Any:
    answer = await live.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@operator_task("submit_a_valid_job")
async def test_submit_a_valid_job(live: Any, console: Console) -> None:
    await console.open("submit")
    await console.page.get_by_label("Job spec").fill(SPEC.replace("dp: 2", "dp: 0"))
    hands = await console.open("submit")  # the draft is kept, with its mistake
    await expect(console.page.get_by_role("region", name="Invalid fields")).to_contain_text("layout.dp")
    await hands.fill("Job spec", SPEC)
    await expect(console.page.get_by_role("region", name="Valid spec")).to_contain_text("2 ranks")
    await hands.press("Control+Enter")
    await hands.click("button", "Submit mine")
    await console.page.wait_for_url("**/why")
    (job,) = (await get(live, "/v1/jobs"))["jobs"]
    assert (job["name"], job["state"]) == ("mine", "QUEUED")


@operator_task("suspend_and_resume_a_job")
async def test_suspend_and_resume_a_job(live: Any, console: Console) -> None:
    job = (await live.submit(name="pauses"))["id"]
    hands = await console.open(f"jobs/{job}?action=suspend")
    await hands.click("button", "Suspend pauses")
    await expect(console.page.locator("h1 ~ p")).to_contain_text("SUSPENDED")
    assert (await get(live, f"/v1/jobs/{job}"))["state"] == "SUSPENDED"
    await hands.click("button", "Resume")
    await hands.click("button", "Resume pauses")
    await expect(console.page.locator("h1 ~ p")).to_contain_text("QUEUED")
    assert (await get(live, f"/v1/jobs/{job}"))["state"] == "QUEUED"


@operator_task("cancel_a_job")
async def test_cancel_a_job(live: Any, console: Console) -> None:
    job = (await live.submit(name="ends"))["id"]
    hands = await console.open("jobs")
    await hands.click("checkbox", "Select ends")
    await hands.click("button", "Cancel")
    await hands.click("button", "Cancel ends")
    row = console.page.get_by_role("row").filter(has=console.page.get_by_role("link", name="ends", exact=True))
    await expect(row).to_contain_text("CANCELLED")
    assert (await get(live, f"/v1/jobs/{job}"))["state"] == "CANCELLED"


@operator_task("find_a_job_and_the_state_of_the_server")
async def test_find_a_job_and_the_state_of_the_server(live: Any, console: Console) -> None:
    job = (await live.submit(name="labelled", labels={"team": "nlp"}))["id"]
    await live.submit(name="other")
    hands = await console.open()
    await expect(console.page.get_by_text("0 jobs run on 0 of 0 cores; 2 jobs wait.")).to_be_visible()
    assert (await get(live, "/v1/overview"))["summary"] == "0 jobs run on 0 of 0 cores; 2 jobs wait."
    await hands.click("link", "Jobs g j")
    await hands.fill("Filter", "state:QUEUED label:team=nlp author:me")
    await expect(console.page.locator("tbody a")).to_have_text(["labelled"])
    await hands.click("link", "labelled")
    await console.page.wait_for_url(f"**/jobs/{job}")


@operator_task("list_recent_incidents")
async def test_list_recent_incidents(live: Any, console: Console) -> None:
    job = (await live.submit(name="unlucky"))["id"]
    await live.run(job)
    now = live.services.clock()
    data = {"id": "r1", "cause": "rank 3 exited", "generation": 1, "at_step": 2, "steps_lost": 3}
    await live.report(job, ("incident", 1, {**data, "times": {"seen_s": now - 60}, "durations": {"total": 4.0}}))
    async with live.store._database.write() as connection:  # reports of the double have times of 1970
        await connection.execute(incidents.update().values(time_s=now - 60))
    hands = await console.open()
    row = console.page.get_by_role("row").filter(has_text="rank 3 exited")
    await expect(row).to_contain_text("4 s")
    await hands.click("link", "unlucky #1")
    await console.page.wait_for_url(f"**/jobs/{job}/story?incident=1")
    (found,) = (await get(live, f"/v1/jobs/{job}/incidents"))["incidents"]
    assert (found["cause"], found["number"]) == ("rank 3 exited", 1)
