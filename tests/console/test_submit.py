"""The page that submits a job: templates, checks while one writes, completion, help, copies of jobs, files."""

import json
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.support.console.signed_in_page import Console
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes

pytestmark = pytest.mark.browser
VALID = "name: mine\nworkload:\n  kind: script\n  entrypoint: /data/train.py\nlayout: {dp: 2}\n"


def editor(console: Console) -> Locator:
    return console.page.get_by_role("textbox", name="Job spec")


def panel(console: Console, name: str) -> Locator:
    return console.page.get_by_role("region", name=name)


async def test_every_template_is_valid(console: Console) -> None:
    await console.open("submit")
    names = await console.page.get_by_label("Start from a template").locator("option").all_inner_texts()
    assert len(names) == 5
    await expect(panel(console, "Valid spec")).to_contain_text("can run with")  # the page begins with the first one
    for name in names[2:4]:
        async with console.page.expect_response("**/v1/spec/validate") as answered:
            await console.page.get_by_label("Start from a template").select_option(name)
        await answered.value
        await expect(panel(console, "Valid spec")).to_contain_text("can run with")
    await console.page.get_by_label("Start from a template").select_option(names[4])
    await expect(panel(console, "Invalid fields")).to_contain_text("no node of the cluster fits")  # none has a GPU


async def test_invalid_fields_are_listed_and_lead_to_their_lines(console: Console) -> None:
    await console.open("submit")
    await editor(console).fill(VALID + "layuot: auto\nseed: many\n")
    faults = panel(console, "Invalid fields")
    await expect(faults).to_contain_text("2 fields are invalid")
    await expect(faults.get_by_role("listitem").filter(has_text="seed")).to_contain_text("Line 7")
    marked = "[...CSS.highlights.get('submit-invalid')].map(range => range.toString())"
    assert sorted(await console.page.evaluate(marked)) == ["layuot: auto", "seed: many"]
    await faults.get_by_role("button", name="Line 7").click()
    await expect(panel(console, "Help")).to_contain_text("seed")
    await editor(console).fill("name: [\n")
    await expect(faults).to_contain_text("Line 2")


async def test_keys_and_values_are_completed_from_the_schema(console: Console) -> None:
    await console.open("submit")
    await editor(console).fill(VALID)
    await editor(console).press("Control+End")
    await editor(console).press_sequentially("pri")
    await console.page.get_by_role("option", name="priority").click()
    await expect(panel(console, "Help")).to_contain_text("priority")
    await editor(console).press("Control+Space")
    await console.page.get_by_role("option", name="high").click()
    await expect(panel(console, "Valid spec")).to_be_visible()
    await expect(editor(console)).to_contain_text("priority: high")


async def test_control_and_enter_submits_after_a_preview(live: Any, console: Console) -> None:
    await console.open("submit")
    await editor(console).fill(VALID)
    await expect(panel(console, "Valid spec")).to_contain_text("2 ranks")
    await editor(console).press("Control+Enter")
    dialog = console.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("joins the queue of project default")
    assert (await live.http.get("/v1/jobs")).json()["jobs"] == []
    await dialog.get_by_text("As commands").click()
    await expect(dialog.locator("pre").nth(1)).to_contain_text("--data-binary @spec.yaml")
    assert await console.violations() == []
    await dialog.get_by_role("button", name="Submit mine").click()
    await console.page.wait_for_url("**/why")
    (job,) = (await live.http.get("/v1/jobs")).json()["jobs"]
    assert (job["name"], job["state"]) == ("mine", "QUEUED")


async def test_layouts_have_predicted_step_times(live: Any, console: Console) -> None:
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    spec = auto_json({"dp": {"min": 1, "target": 2, "max": 4}}, micro_batch=4)
    await console.open("submit")
    await editor(console).fill(json.dumps(spec))
    table = panel(console, "Predicted step time of each layout")
    await table.wait_for()
    found = (await live.http.post("/v1/spec/sizes", json=spec)).json()["sizes"]
    cells = [await row.locator("td").all_inner_texts() for row in await table.locator("tbody tr").all()]
    assert [cell[0] for cell in cells] == ["1 rank", "2 ranks = shards 2", "3 ranks = shards 3", "4 ranks = shards 4"]
    milliseconds = [float(f"{1000 * each['expected_step_s']:.3g}") for each in found]
    assert [float(cell[1].removesuffix(" ms")) for cell in cells] == milliseconds
    await expect(panel(console, "Valid spec")).to_contain_text("which hold 4 ranks if they are idle")
    assert await console.violations() == []
    await editor(console).fill(VALID)
    await expect(panel(console, "Valid spec")).to_contain_text("The planner predicts no step times")
    assert await console.violations() == []


async def test_a_job_is_copied_and_continued_from_a_step(live: Any, console: Console, make_spec: Any) -> None:
    made = await live.submit(name="origin", seed=7, labels={"note": "1:30"})
    await console.open(f"submit?from={made['id']}")
    await expect(panel(console, "Valid spec")).to_contain_text("Job origin")
    async with console.page.expect_response("**/v1/spec/validate") as validated:
        await console.open(f"submit?from={made['id']}&step=4")
    text = (await validated.value).request.post_data or ""
    assert f"resume_from: {made['id']}@4" in text or f'resume_from: "{made["id"]}@4"' in text
    assert "seed: 7" in text and 'note: "1:30"' in text and "determinism" not in text


async def test_a_file_is_dropped_on_the_editor(console: Console) -> None:
    await console.open("submit")
    await console.page.evaluate(
        """text => {
          const data = new DataTransfer();
          data.items.add(new File([text], "spec.yaml"));
          const options = { dataTransfer: data, bubbles: true, cancelable: true };
          document.querySelector(".submit-drop").dispatchEvent(new DragEvent("drop", options));
        }""",
        VALID,
    )
    await expect(panel(console, "Valid spec")).to_contain_text("Job mine")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(console: Console, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    await console.open("submit")
    await expect(panel(console, "Valid spec")).to_be_visible()
    assert await console.violations() == []
    await console.page.set_viewport_size({"width": 390, "height": 800})
    await editor(console).fill("name: Not Valid\n")
    await expect(panel(console, "Invalid fields")).to_be_visible()
    assert await console.violations() == []
    assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390
