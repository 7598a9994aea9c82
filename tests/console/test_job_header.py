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
