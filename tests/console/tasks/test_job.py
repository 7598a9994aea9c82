"""Tasks of an operator about one job, each with at most three interactions, and their results through the API."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import trained_job

pytestmark = pytest.mark.browser


async def jobs_by_name(live: Any) -> dict[str, Any]:
    found = (await live.http.get("/v1/jobs")).json()["jobs"]
    return {each["name"]: (await live.http.get(f"/v1/jobs/{each['id']}")).json() for each in found}


@operator_task("rescue_a_failed_job")
async def test_a_failed_job_is_submitted_again_with_a_correction(live: Any, console: Console) -> None:
    job = await trained_job(live)
    error = {"kind": "ValueError", "message": "bad batch", "traceback": "Traceback\n  File train.py"}
    failed = {"state": "FAILED", "reason": "user_error", "message": "bad", "error": error}
    await live.report(job["id"], ("state", 3, failed))
    hands = await console.open(f"jobs/{job['id']}/spec")
    await expect(console.page.get_by_label("Why the job failed")).to_contain_text("ValueError: bad batch")
    await hands.click("button", "Clone and edit")
    await hands.fill("Changed fields", "training.global_batch=32\ntraining.micro_batch=2")
    await expect(console.page.get_by_role("dialog")).to_contain_text("training.global_batch: 16 → 32")
    await hands.click("button", "Submit the copy")
    await expect(console.page.locator("h1")).to_have_text("gpt-copy")
    made = (await jobs_by_name(live))["gpt-copy"]
    training = made["spec"]["training"]
    assert (training["global_batch"], training["micro_batch"]) == (32, 2)
    assert made["spec"] == {**job["spec"], "name": "gpt-copy", "training": training}


@operator_task("restore_an_earlier_step")
async def test_a_new_job_starts_from_an_earlier_step(live: Any, console: Console) -> None:
    job = await trained_job(live)
    await live.report(job["id"], ("state", 3, {"state": "FAILED", "reason": "non_finite", "message": ""}))
    hands = await console.open(f"jobs/{job['id']}/data")
    await hands.click("button", "Start from step 4")
    await expect(console.page.get_by_role("dialog")).to_contain_text("from the checkpoint of step 4 of gpt")
    await hands.click("button", "Start from step 4", within=console.page.get_by_role("dialog"))
    await expect(console.page.locator("h1")).to_have_text("gpt-from-4")
    made = (await jobs_by_name(live))["gpt-from-4"]
    assert made["spec"] == {**job["spec"], "name": "gpt-from-4", "resume_from": f"{job['id']}@4"}


@operator_task("resize_a_job")
async def test_a_running_job_is_resized(live: Any, console: Console) -> None:
    job = await trained_job(live)
    hands = await console.open(f"jobs/{job['id']}/layout")
    await hands.fill("Number of ranks", "0", within=console.page.get_by_role("region", name="Size"))
    await hands.click("button", "Resize")
    dialog = console.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("gpt changes from 8 ranks to 2 ranks")
    await expect(dialog).to_contain_text("About 3.2 s pass without steps")
    await hands.click("button", "Resize to 2 ranks")
    await expect(console.page.get_by_text("A resize to 2 ranks is pending")).to_be_visible()
    intents = (await live.http.get(f"/v1/jobs/{job['id']}")).json()["intents"]
    assert intents["resize"]["layout"] == {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 2, "pp": 1}


@operator_task("verify_the_samples_and_the_history")
async def test_the_samples_and_a_checkpoint_are_verified(live: Any, console: Console) -> None:
    job = await trained_job(live)
    hands = await console.open(f"jobs/{job['id']}/data")
    ledger = (await live.http.get(f"/v1/jobs/{job['id']}/ledger")).json()
    assert ledger["exact"]
    samples = console.page.get_by_role("region", name="Samples", exact=True)
    await expect(samples).to_contain_text("No sample was lost and none was used twice in 12 committed steps")
    await expect(samples).to_contain_text(ledger["samples_hash"])
    await hands.click("button", "Verify step 8")
    await expect(console.page.get_by_role("dialog")).to_contain_text("Intact")
    answer = await live.http.post(f"/v1/jobs/{job['id']}/checkpoints/8/verify")
    assert (answer.json()["faults"], answer.json()["is_complete"]) == ([], True)
