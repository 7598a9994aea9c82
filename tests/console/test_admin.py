"""The page for administration: each tab shows what the API has, changes it after a preview, and is accessible."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route, expect

from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser
TABS = ("you", "tokens", "sessions", "members", "hooks", "secrets", "audit", "server")


@pytest.fixture
async def filled(live: Any) -> None:
    """People, members, a token, a hook, a secret and a changed quota in the project `default`."""
    http = live.http
    await http.post("/v1/identities", json={"subject": "kim@example.com", "kind": "user"})
    await http.put("/v1/projects/default/members/kim@example.com", json={"role": "editor", "permissions": ["exec"]})
    await http.post("/v1/tokens", json={"name": "notebook", "subject": "kim@example.com", "role": "viewer"})
    await http.post("/v1/projects/default/hooks", json={"name": "alerts", "url": "https://hooks.example.com/a?key=s"})
    await http.put("/v1/projects/default/secrets/HF_TOKEN", json={"value": "hf_secret"})
    for limit in (8, 16):
        await http.put("/v1/projects/default", json={"limit": limit})


async def cells(console: Console, table: str) -> list[list[str]]:
    region = console.page.get_by_role("region", name=table, exact=True)
    await region.wait_for()
    return [await each.locator("td").all_inner_texts() for each in await region.locator("tbody tr").all()]


async def test_each_tab_shows_what_the_api_has(console: Console, live: Any, filled: None) -> None:
    await console.open("admin")
    await expect(console.page.get_by_role("region", name="Identity", exact=True)).to_contain_text("Owner of the server")
    await console.open("admin/tokens")
    (token,) = (await live.http.get("/v1/tokens")).json()["tokens"]
    (row,) = await cells(console, "Tokens, the newest first")
    assert row[:4] == [token["name"], token["subject"], "valid", "at most viewer"]
    await console.open("admin/sessions")
    (session,) = (await live.http.get("/v1/sessions")).json()["sessions"]
    (row,) = await cells(console, "Sessions, the newest first")
    assert row[0] == session["subject"] and "Chrome" in row[1] and row[-1].endswith("this browser")
    await console.open("admin/members")
    assert (await cells(console, "Members of the project"))[0][:3] == ["kim@example.com", "editor", "exec"]
    assert (await cells(console, "People and service accounts"))[0][:3] == ["kim@example.com", "person", "no"]
    await console.open("admin/hooks")
    (hook,) = (await live.http.get("/v1/projects/default/hooks")).json()["hooks"]
    assert (await cells(console, "Hooks of the project"))[0][:3] == ["alerts", "cloudevents", hook["url"]]
    await console.open("admin/secrets")
    assert (await cells(console, "Secrets of the project"))[0][:2] == ["HF_TOKEN", "1"]
    assert "hf_secret" not in await console.page.content()


async def test_an_audit_record_shows_what_differs(console: Console, live: Any, filled: None) -> None:
    await console.open("admin/audit?action=projects.put")
    newest, oldest = await cells(console, "Records of changes")
    assert newest[5].split() == ["limit", "8", "→", "16"] and "limit" in oldest[5]
    await console.page.get_by_label("Actor", exact=True).fill("nobody")
    await expect(console.page.get_by_role("heading", name="No change matches")).to_be_visible()
    assert "actor=nobody" in console.page.url and "action=projects.put" in console.page.url
    await console.page.get_by_label("Actor", exact=True).fill("")
    async with console.page.expect_download() as downloading:
        await console.page.get_by_role("button", name="Export JSON lines").click()
    lines = read(await (await downloading.value).path()).splitlines()
    assert {json.loads(line)["action"] for line in lines} <= {"projects.put"}
    chain = (await live.http.get("/v1/audit/chain")).json()
    await expect(console.page.get_by_role("region", name="Chain of records")).to_contain_text("position")
    assert chain["end"]["position"] >= 0


def read(path: Path) -> str:
    return path.read_text()


async def test_settings_are_shown_with_their_source(console: Console, live: Any) -> None:
    await console.open("admin/server")
    listed = (await live.http.get("/v1/settings")).json()["settings"]
    changed = [each["variable"] for each in listed if each["source"] != "default"]
    assert [row[0] for row in await cells(console, "Settings with their sources")] == changed
    await console.page.get_by_label("Settings", exact=True).select_option("all")
    await console.page.get_by_label("Find", exact=True).fill("regroup_port")
    table = console.page.get_by_role("region", name="Settings with their sources", exact=True)
    await expect(table.locator("tbody tr").first).to_contain_text("8500")
    assert "find=regroup_port" in console.page.url and "settings=all" in console.page.url
    version = (await live.http.get("/version")).json()["version"]
    await expect(console.page.get_by_text(version, exact=True)).to_be_visible()
    assert {row[0] for row in await cells(console, "Checks of what the server needs")} >= {"database", "cluster"}


async def test_a_change_is_previewed_and_shown_as_commands(console: Console, live: Any, filled: None) -> None:
    await console.open("admin/members")
    await console.page.get_by_role("button", name="Change the role of kim@example.com").click()
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_label("Role", exact=True).select_option("admin")
    await expect(dialog.get_by_role("region").or_(dialog.locator(".effect"))).to_contain_text(
        "becomes admin of default"
    )
    await dialog.get_by_text("As commands").click()
    await expect(dialog.locator("pre").first).to_have_text(
        "regroup members set default kim@example.com admin --permission exec"
    )
    assert (await live.http.get("/v1/projects/default/members")).json()["members"][0]["role"] == "editor"
    assert await console.violations() == []
    await dialog.get_by_role("button", name="Change role").click()
    await expect(console.page.get_by_role("cell", name="admin", exact=True)).to_be_visible()
    assert (await live.http.get("/v1/projects/default/members")).json()["members"][0]["role"] == "admin"


async def test_a_secret_is_stored_and_deleted_and_never_shown(console: Console, live: Any) -> None:
    await console.open("admin/secrets?project=vision")
    await console.page.get_by_role("button", name="Set secret").click()
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_label("Name", exact=True).fill("WANDB_KEY")
    await dialog.get_by_label("Value", exact=True).fill("abcd1234")
    await expect(dialog.locator(".effect")).to_contain_text("version 1")
    assert "abcd1234" not in await dialog.inner_html()
    await dialog.get_by_role("button", name="Store secret").click()
    await console.page.get_by_role("button", name="Delete WANDB_KEY").click()
    assert [each["name"] for each in (await live.http.get("/v1/projects/vision/secrets")).json()["secrets"]] == [
        "WANDB_KEY"
    ]
    await console.page.get_by_role("dialog").get_by_role("button", name="Delete secret").click()
    await expect(console.page.get_by_role("heading", name="vision has no secrets")).to_be_visible()
    assert (await live.http.get("/v1/projects/vision/secrets")).json()["secrets"] == []


async def test_a_hook_is_created_disabled_and_deleted(console: Console, live: Any) -> None:
    await console.open("admin/hooks?project=ci")
    await console.page.get_by_role("button", name="New hook").click()
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_label("Name", exact=True).fill("chat")
    await dialog.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/x")
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await dialog.get_by_label("URL", exact=True).fill("https://hooks.example.com/x")
    await dialog.get_by_role("button", name="Create hook").click()
    await console.page.get_by_role("dialog").get_by_role("button", name="Done").click()
    await console.page.get_by_role("button", name="Disable chat").click()
    await console.page.get_by_role("dialog").get_by_role("button", name="Disable hook").click()
    await expect(console.page.get_by_role("cell", name="disabled", exact=True)).to_be_visible()
    (hook,) = (await live.http.get("/v1/projects/ci/hooks")).json()["hooks"]
    assert (hook["is_enabled"], hook["events"]) == (
        False, ["state:SUCCEEDED", "state:FAILED", "state:CANCELLED", "held"],
    )  # fmt: skip
    await console.page.get_by_role("button", name="Delete chat").click()
    await console.page.get_by_role("dialog").get_by_role("button", name="Delete hook").click()
    await expect(console.page.get_by_role("heading", name="ci has no hooks")).to_be_visible()


async def test_a_session_that_ends_signs_the_browser_out(console: Console, live: Any) -> None:
    await console.open("admin/sessions")
    (session,) = (await live.http.get("/v1/sessions")).json()["sessions"]
    await console.page.get_by_role("button", name=f"End the session {session['id']}").click()
    await console.page.get_by_role("dialog").get_by_role("button", name="End session").click()
    await expect(console.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert (await live.http.get("/v1/sessions")).json()["sessions"] == []


async def test_a_refusal_shows_its_reason(console: Console) -> None:
    problem = {"type": "about:blank", "title": "Forbidden", "status": 403, "code": "forbidden", "detail": "kim may not"}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=403, content_type="application/problem+json", body=json.dumps(problem))

    await console.page.route("**/v1/audit?*", refuse)
    await console.open("admin/audit")
    await expect(console.page.get_by_role("alert")).to_contain_text("kim may not")
    assert await console.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_each_tab_is_accessible_and_fits_a_phone(console: Console, filled: None, scheme: Any) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    for tab in TABS:
        await console.page.set_viewport_size({"width": 1280, "height": 800})
        await console.open(f"admin/{tab}")
        await console.page.locator("table").first.or_(console.page.locator(".state h2").first).first.wait_for()
        assert await console.violations() == [], tab
        await console.page.set_viewport_size({"width": 390, "height": 800})
        assert await console.page.evaluate("document.documentElement.scrollWidth") <= 390, tab


async def test_empty_tabs_are_accessible_and_a_dialog_works_with_the_keyboard(console: Console) -> None:
    for tab, text in (
        ("tokens", "No tokens"),
        ("hooks", "default has no hooks"),
        ("secrets", "default has no secrets"),
    ):
        await console.open(f"admin/{tab}")
        await expect(console.page.get_by_role("heading", name=text)).to_be_visible()
        assert await console.violations() == [], tab
    await console.open("admin/tokens")
    button = console.page.get_by_role("button", name="New token")
    await button.focus()
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("dialog")).to_contain_text("choose the identity")
    assert await console.violations() == []
    await console.page.keyboard.press("Escape")
    await expect(console.page.get_by_role("dialog")).to_be_hidden()
    await expect(button).to_be_focused()
