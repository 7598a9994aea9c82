"""The tab Data and checkpoints of a job: the ledger and the checkpoints agree with the API, and can be used."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.signed_in_page import Console
from tests.support.console.trained_job import trained_job
from tests.support.inputs.stored_checkpoints import FILES, folder_of

pytestmark = pytest.mark.browser


@pytest.fixture
async def job(live: Any, console: Console) -> dict[str, Any]:
    made = await trained_job(live)
    await console.open(f"jobs/{made['id']}/data")
    await expect(console.page.get_by_role("button", name="Verify step 8")).to_be_visible()
    return made


async def test_the_ledger_is_that_of_the_api(job: Any, live: Any, console: Console) -> None:
    ledger = (await live.http.get(f"/v1/jobs/{job['id']}/ledger")).json()
    samples = console.page.get_by_role("region", name="Samples", exact=True)
    for text in (str(ledger["samples"]), ledger["samples_hash"], "Lost0", "Used twice0", f"Committed steps{12}"):
        await expect(samples).to_contain_text(text)
    verdict = f"none was used twice in 12 committed steps, although {ledger['superseded']} steps ran again"
    await expect(samples).to_contain_text(verdict)
    await console.page.get_by_text("Steps by generation").click()
    rows = console.page.get_by_role("region", name="Steps by generation").get_by_role("row")
    await expect(rows).to_have_text(["GenerationCommitted stepsCount", "39 to 124", "21 to 88", "1none0"])


async def test_the_checkpoints_are_those_of_the_api(job: Any, live: Any, console: Console) -> None:
    listed = (await live.http.get(f"/v1/jobs/{job['id']}/checkpoints")).json()["checkpoints"]
    rows = console.page.get_by_role("region", name="Checkpoints", exact=True).get_by_role("row")
    for row, each in zip((await rows.all())[1:], reversed(listed), strict=True):
        for text in (str(each["step"]), "21.4 kB", "1.5 s", "20 ms", each["uri"]):
            await expect(row).to_contain_text(text)


async def test_an_intact_and_a_damaged_checkpoint_differ(job: Any, console: Console) -> None:
    page = console.page
    await page.get_by_role("button", name="Verify step 8").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Intact: 4 files with 21.4 kB")
    await expect(page.get_by_role("dialog").locator("pre").first).to_have_text(f"regroup verify {job['id']}@8")
    assert await console.violations() == []
    await page.keyboard.press("Escape")
    (folder_of(job["storage_uri"]) / "checkpoints/step-4.gen-2/__1_0.distcp").write_bytes(b"\x08" * 5000)
    await page.get_by_role("button", name="Verify step 4").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Damaged: 1 file of 4 differ")
    await expect(page.get_by_role("dialog")).to_contain_text("__1_0.distcp")
    assert await console.violations() == []


async def test_a_checkpoint_is_pinned_and_unpinned(job: Any, live: Any, console: Console) -> None:
    for name, pinned in (("Pin step 4", True), ("Unpin step 4", False)):
        await console.page.get_by_role("button", name=name).click()
        dialog = console.page.get_by_role("dialog")
        await expect(dialog.locator("pre").first).to_have_text(f"regroup {name.split()[0].lower()} {job['id']}@4")
        await dialog.get_by_role("button", name=name).click()
        await expect(dialog).to_have_count(0)
        (oldest, _) = (await live.http.get(f"/v1/jobs/{job['id']}/checkpoints")).json()["checkpoints"]
        assert oldest["pinned"] is pinned


async def test_an_export_has_the_files_and_commands(job: Any, live: Any, console: Console) -> None:
    found = (await live.http.get(f"/v1/jobs/{job['id']}/checkpoints/8/files")).json()
    await console.page.get_by_role("button", name="Export step 8").click()
    dialog = console.page.get_by_role("dialog")
    for text in (found["copy_command"], found["export_command"], "dcp.load(", found["checkpoint"]["uri"]):
        await expect(dialog).to_contain_text(text)
    await dialog.get_by_text("Files", exact=True).click()
    for name in FILES:
        await expect(dialog.get_by_role("row", name=name)).to_be_visible()
    assert await console.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_tab_is_accessible_with_and_without_data(job: Any, live: Any, console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    assert await console.violations() == []
    await console.page.set_viewport_size({"width": 390, "height": 800})
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
    other = await live.submit(name="waits")
    await console.open(f"jobs/{other['id']}/data")
    await expect(console.page.get_by_role("heading", name="No checkpoints")).to_be_visible()
    await expect(console.page.get_by_text("No step is committed yet")).to_be_visible()
    assert await console.violations() == []


async def test_storage_that_lost_the_checkpoint_is_explained(job: Any, console: Console) -> None:
    (folder_of(job["storage_uri"]) / "checkpoints/step-8.gen-2/manifest.json").unlink()
    await console.page.get_by_role("button", name="Verify step 8").click()
    await expect(console.page.get_by_role("alert")).to_contain_text("the checkpoint is not complete, or was removed")
