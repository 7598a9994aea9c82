"""The page of jobs: rows that load as it scrolls, the filter, saved views, the selection, keys, live changes."""

from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from regroup.service.domain.author import Author
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import NewJob
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


async def submit_many(live: Any, make_spec: Any, count: int) -> None:
    """Submit jobs `job-0000` and so on without one request for each."""
    for number in range(count):
        spec = parse_spec(make_spec(name=f"job-{number:04}"))
        new = NewJob(f"job_{number:018}", spec, f"file:///s/{number}")
        await live.store.submissions.submit(new, now=1.0 + number, author=Author("ana", address="test"))


def row_of(console: Console, name: str) -> Locator:
    return console.page.get_by_role("row").filter(has=console.page.get_by_role("link", name=name, exact=True))


async def names(console: Console) -> Sequence[str]:
    return await console.page.locator("tbody a").all_inner_texts()


async def test_a_job_is_shown_with_its_progress(live: Any, console: Console, job_events: Any) -> None:
    job = (await live.submit(name="trains", labels={"team": "nlp"}))["id"]
    await live.run(job)
    await live.report(job, job_events.step(1, 2, loss=1.5), status={"goodput": 0.5})
    await console.open("jobs")
    row = row_of(console, "trains")
    for text in ("RUNNING", "default", "2 / 10", "1.5", "128", "50 %", "4 s"):
        await expect(row).to_contain_text(text)
    await row.get_by_role("link", name="trains").click()
    await expect(console.page.locator("h1")).to_have_text("trains")


async def test_pages_of_jobs_load_while_the_reader_scrolls(live: Any, console: Console, make_spec: Any) -> None:
    await submit_many(live, make_spec, 320)
    await console.open("jobs")
    await expect(console.page.locator("header p")).to_contain_text("100 jobs loaded")
    table = console.page.get_by_role("region", name="Jobs")
    assert await console.page.locator("tbody tr").count() < 80
    for _ in range(3):
        await table.evaluate("box => { box.scrollTop = box.scrollHeight }")
        await expect(console.page.locator("header p")).not_to_contain_text("100 jobs")
    await expect(console.page.locator("header p")).to_have_text("320 jobs")
    await table.evaluate("box => { box.scrollTop = box.scrollHeight }")
    await expect(console.page.get_by_role("link", name="job-0000")).to_be_visible()


async def test_the_filter_is_in_the_address_and_names_its_mistake(live: Any, console: Console) -> None:
    for name, team in (("one", "nlp"), ("two", "vision")):
        await live.submit(name=name, labels={"team": team})
    await console.open("jobs")
    await expect(console.page.locator("tbody a")).to_have_text(["two", "one"])
    await console.page.keyboard.press("/")
    field = console.page.get_by_label("Filter", exact=True)
    await field.press_sequentially("label:team=n")
    await field.press("ArrowDown")
    await field.press("Enter")
    await expect(field).to_have_value("label:team=nlp ")
    await expect(console.page.locator("tbody a")).to_have_text(["one"])
    assert console.page.url.endswith("/console/jobs?q=label%3Ateam%3Dnlp")
    await console.page.reload()
    await expect(console.page.locator("tbody a")).to_have_text(["one"])
    await field.fill("state:SLEEPING")
    await field.press("Enter")
    await expect(console.page.get_by_label("Faults of the filter")).to_contain_text("unknown state SLEEPING")
    await field.fill("state:FAILED")
    await expect(console.page.get_by_role("heading", name="No job matches the filter")).to_be_visible()
    await console.page.get_by_role("link", name="show all jobs").click()
    await expect(console.page.locator("tbody a")).to_have_text(["two", "one"])
    await expect(field).to_have_value("")


async def test_a_view_is_saved_in_this_browser(live: Any, console: Console) -> None:
    await live.submit(name="one", labels={"team": "nlp"})
    await console.open("jobs?q=label:team%3Dnlp")
    await console.page.get_by_role("button", name="Save this view").click()
    await console.page.get_by_label("Name of the view").fill("Language")
    await console.page.keyboard.press("Enter")
    await console.page.get_by_role("link", name="Waiting").click()
    await console.page.reload()
    own = console.page.get_by_role("link", name="Language", exact=True)
    await own.click()
    await expect(console.page.get_by_label("Filter", exact=True)).to_have_value("label:team=nlp")
    await expect(own).to_have_attribute("aria-current", "true")
    await console.page.get_by_role("button", name="Delete the view Language").click()
    await expect(own).to_have_count(0)


async def test_keys_move_select_and_open(live: Any, console: Console) -> None:
    ids = {name: (await live.submit(name=name))["id"] for name in ("one", "two", "three")}
    await console.open("jobs")
    await expect(console.page.locator("tbody a")).to_have_text(["three", "two", "one"])
    for key in ("j", "j", "x", "j", "x", "k"):
        await console.page.keyboard.press(key)
    await expect(console.page.get_by_label("Select two")).to_be_checked()
    await expect(console.page.get_by_label("Select one")).to_be_checked()
    await expect(console.page.get_by_role("region", name="Selected jobs")).to_contain_text("2 jobs selected")
    await console.page.keyboard.press("Escape")
    await expect(console.page.get_by_label("Select two")).not_to_be_checked()
    await console.page.keyboard.press("Enter")
    await console.page.wait_for_url(f"**/jobs/{ids['two']}")


async def test_an_action_shows_its_effect_on_each_job_before_it_happens(live: Any, console: Console) -> None:
    running, waiting = (await live.submit(name="runs"))["id"], (await live.submit(name="waits"))["id"]
    paused = (await live.submit(name="paused"))["id"]
    await live.run(running)
    await live.http.post(f"/v1/jobs/{paused}/suspend")
    await console.open("jobs")
    await console.page.get_by_label("Select all jobs that are loaded").click()
    await console.page.get_by_role("button", name="Resume", exact=True).click()
    dialog = console.page.get_by_role("dialog")
    await expect(dialog.get_by_role("listitem").filter(has_text="paused")).to_contain_text("becomes QUEUED at once")
    await console.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await console.page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(dialog.get_by_role("listitem").filter(has_text="runs")).to_contain_text("stops all its ranks")
    await expect(dialog.get_by_role("listitem").filter(has_text="waits")).to_contain_text("becomes CANCELLED at once")
    await dialog.get_by_text("As commands").click()
    await expect(dialog.locator("pre").first).to_contain_text(f"regroup cancel {waiting}")
    assert await console.violations() == []
    assert (await live.http.get(f"/v1/jobs/{waiting}")).json()["state"] == "QUEUED"
    await dialog.get_by_role("button", name="Cancel 3 jobs").click()
    await expect(dialog).to_have_count(0)
    assert (await live.http.get(f"/v1/jobs/{waiting}")).json()["state"] == "CANCELLED"
    assert (await live.http.get(f"/v1/jobs/{running}")).json()["intents"]["cancel"] is True
    await expect(row_of(console, "waits")).to_contain_text("CANCELLED")


async def test_only_changed_rows_are_loaded_again(live: Any, console: Console) -> None:
    first = (await live.submit(name="first"))["id"]
    await live.submit(name="second")
    requested: list[str] = []
    await console.open("jobs?q=state:QUEUED")
    await expect(console.page.locator("tbody a")).to_have_text(["second", "first"])
    console.page.on("request", lambda request: requested.append(request.url) if "/v1/jobs?" in request.url else None)
    await live.submit(name="third")
    await expect(console.page.locator("tbody a")).to_have_text(["third", "second", "first"])
    await live.http.post(f"/v1/jobs/{first}/cancel")
    await expect(console.page.locator("tbody a")).to_have_text(["third", "second"])
    assert requested and all("id=job_" in url and "state=QUEUED" in url for url in requested)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(live: Any, console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("jobs")
    await expect(console.page.get_by_role("heading", name="There is no job yet")).to_be_visible()
    assert await console.violations() == []
    await live.run((await live.submit(name="runs"))["id"])
    await live.submit(name="waits")
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await console.open("jobs")
    await console.page.get_by_label("Select runs").click()
    await console.page.get_by_label("Filter", exact=True).press_sequentially("oops ")
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
