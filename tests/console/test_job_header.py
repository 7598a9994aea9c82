"""The header of a job: links to other systems, and the dialog of its budget."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser
ENV = {"WANDB_ENTITY": "team", "WANDB_PROJECT": "gpt", "MLFLOW_TRACKING_URI": "https://ana:secret@mlflow.example"}
GRAFANA, RAY = "https://grafana.example/d/regroup", "https://ray.example/"


@pytest.fixture
def dashboards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a server that the test starts later."""
    monkeypatch.setenv("REGROUP_GRAFANA_URL", GRAFANA)
    monkeypatch.setenv("REGROUP_RAY_DASHBOARD_URL", RAY)


async def test_the_header_links_to_trackers_and_dashboards(dashboards: None, live: Any, console: Console) -> None:
    job = await live.submit(name="tracked", env=ENV)
    assert "secret" not in str(job["links"])
    await console.open(f"jobs/{job['id']}/story")
    run = job["id"].replace("_", "-")
    for name, address in (
        ("Weights & Biases", f"https://wandb.ai/team/gpt/runs/{run}"),
        ("MLflow", "https://mlflow.example/#/experiments"),
        ("Grafana", GRAFANA),
        ("Ray dashboard", RAY),
    ):
        link = console.page.locator("header.page-header").get_by_role("link", name=name)
        await expect(link).to_have_attribute("href", address)
        await expect(link).to_have_attribute("rel", "noreferrer")
    assert await console.violations() == []


async def test_without_trackers_and_dashboards_there_are_no_links(live: Any, console: Console) -> None:
    job = await live.submit(name="plain")
    await console.open(f"jobs/{job['id']}/story")
    await expect(console.page.locator("header.page-header").get_by_role("link", name="Clone")).to_be_visible()
    assert await console.page.locator("header.page-header .actions a").all_inner_texts() == ["Clone"]


async def test_the_budget_is_set_in_a_dialog(live: Any, console: Console) -> None:
    job = await live.submit(name="gpt", budget={"device_hours": 5})
    await console.open(f"jobs/{job['id']}/story")
    await expect(console.page.locator("header.page-header")).to_contain_text("budget 5 device-hours")
    await console.page.get_by_role("button", name="Budget").click()
    dialog = console.page.get_by_role("dialog")
    await expect(dialog.get_by_label("Budget", exact=True)).to_have_value("5")
    await dialog.get_by_label("Budget", exact=True).fill("0")
    await expect(dialog.get_by_role("alert")).to_contain_text("must be > 0")
    await dialog.get_by_label("Budget", exact=True).fill("70")
    await expect(dialog).to_contain_text("gpt may use 70 device-hours, and could use 5 device-hours")
    await expect(dialog).to_contain_text(f"regroup budget {job['id']} --device-hours 70")
    assert await console.violations() == []
    await dialog.get_by_role("button", name="Set the budget of gpt").click()
    await expect(console.page.locator("header.page-header")).to_contain_text("budget 70 device-hours")
    assert (await live.http.get(f"/v1/jobs/{job['id']}")).json()["intents"]["budget"] == {"device_hours": 70.0}


async def test_a_job_that_has_ended_has_no_budget_to_change(live: Any, console: Console) -> None:
    job = await live.submit(name="gpt")
    await live.http.post(f"/v1/jobs/{job['id']}/cancel")
    await console.open(f"jobs/{job['id']}/story?action=budget")
    await expect(console.page.locator("header.page-header")).to_contain_text("CANCELLED")
    assert await console.page.get_by_role("button", name="Budget").count() == 0
    await expect(console.page.get_by_role("dialog")).to_have_count(0)


async def test_a_checkpoint_that_is_written_slowly_has_a_bar(live: Any, console: Console) -> None:
    job = (await live.submit(name="slow"))["id"]
    await live.run(job)
    await console.open(f"jobs/{job}/story")
    await expect(console.page.locator("header.page-header")).to_contain_text("RUNNING")
    assert await console.page.get_by_role("progressbar").count() == 0
    size = {"done_bytes": 1_200_000_000, "total_bytes": 4_000_000_000, "bytes_per_s": 3.1e8}
    save = {"step": 40, "generation": 1, "message": "…", **size}
    await live.report(job, status={"save": save})
    bar = console.page.get_by_role("progressbar", name="Writing checkpoint of step 40")
    await expect(bar).to_have_attribute("aria-valuetext", "1.2 GB of 4 GB, 310 MB/s")
    await live.report(job, status={"save": {**save, "done_bytes": 2_400_000_000}})
    await expect(bar).to_have_attribute("aria-valuetext", "2.4 GB of 4 GB, 310 MB/s")
    assert await console.violations() == []
    await live.report(job, status={"save": None})
    await expect(bar).to_have_count(0)


async def test_a_restore_from_a_checkpoint_has_a_bar(live: Any, console: Console) -> None:
    job = (await live.submit(name="restores"))["id"]
    await live.run(job)
    await console.open(f"jobs/{job}/story")
    await expect(console.page.locator("header.page-header")).to_contain_text("RUNNING")
    phase = {"phase": "restoring", "fraction": 0.3, "message": "…", "total_bytes": 4_000_000_000}
    read = {**phase, "done_bytes": 1_200_000_000, "bytes_per_s": 3.1e8}
    await live.report(job, ("state", 1, {"state": "RECOVERING", "reason": "rank_exit"}), ("phase", 1, read))
    bar = console.page.get_by_role("progressbar", name="Restoring state from checkpoint")
    await expect(bar).to_have_attribute("aria-valuetext", "1.2 GB of 4 GB, 310 MB/s")
    await live.report(job, ("phase", 1, {**read, "done_bytes": 2_400_000_000, "bytes_per_s": 0.0}))
    await expect(bar).to_have_attribute("aria-valuetext", "2.4 GB of 4 GB, 0 B/s")
    await live.report(job, ("state", 1, {"state": "RUNNING", "reason": "first_step"}))
    await expect(bar).to_have_count(0)
