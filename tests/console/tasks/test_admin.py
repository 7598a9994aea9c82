"""Tasks of operators on the page for administration."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import expect

from regroup.api.client.async_client import AsyncClient
from regroup.service.local.secrets_key import KeySource
from regroup.service.operations.hooks.delivery import HookDelivery
from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.servers.hook_receiver import running_receiver

pytestmark = pytest.mark.browser


async def get(live: Any, path: str, **params: Any) -> Any:
    answer = await live.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@contextlib.asynccontextmanager
async def receiver(live: Any) -> AsyncIterator[str]:
    """Run the delivery task of the server and a receiver; yield the receiver's URL."""
    settings = live.services.settings
    object.__setattr__(settings, "hook_private_networks", ("127.0.0.0/8",))  # settings are frozen
    async with running_receiver() as running:
        work = HookDelivery(live.store, settings, lambda: live.lease, interval_s=0.02, keys=KeySource(settings))
        delivering = asyncio.create_task(work.run())
        yield running.url()
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)


@operator_task("rotate_a_secret_and_deliver_again")
async def test_rotate_a_secret_and_deliver_again(console: Console, live: Any) -> None:
    async with receiver(live) as url:
        made = (await live.http.post("/v1/projects/ci/hooks", json={"name": "pipeline", "url": url})).json()
        first = (await live.http.post(f"/v1/projects/ci/hooks/{made['id']}/test")).json()["id"]
        hands = await console.open("admin/hooks?project=ci")
        await hands.click("button", "Rotate pipeline")
        await hands.click("button", "Rotate secret")
        shown = console.page.get_by_role("dialog").locator("pre.shown-once")
        await expect(shown).to_contain_text("whsec_")
        assert await shown.inner_text() != made["secret"]
        assert (await get(live, f"/v1/projects/ci/hooks/{made['id']}"))["former_until"] is not None
        hands = await console.open("admin/hooks?project=ci")
        await hands.click("button", f"Deliver {first} again")
        await hands.click("button", "Deliver again", within=console.page.get_by_role("dialog"))
        await expect(console.page.get_by_role("cell", name=f"#{first}")).to_be_visible()
        path = f"/v1/projects/ci/hooks/{made['id']}/deliveries"
        again = (await get(live, path))["deliveries"][0]
        assert again["redelivery_of"] == first
        async with AsyncClient(live.url) as client:
            delivered = await client.wait_for_delivery("ci", made["id"], again["id"])
        assert delivered.state == "delivered"
        row = console.page.get_by_role("row").filter(has=console.page.get_by_role("cell", name=f"#{first}"))
        await expect(row).to_contain_text("delivered")


@operator_task("find_who_changed_a_quota")
async def test_find_who_changed_a_quota(console: Console, live: Any) -> None:
    for name, limit in (("audited", 3), ("audited", 5), ("other", 7)):
        await live.http.put(f"/v1/projects/{name}", json={"limit": limit})
    hands = await console.open("admin/audit")
    await hands.fill("Action", "projects.put")
    await hands.fill("Object", "audited")
    rows = console.page.get_by_role("region", name="Records of changes").locator("tbody tr")
    await expect(rows).to_have_count(2)
    (newest, _) = (await get(live, "/v1/audit", action="projects.put", object="audited"))["records"]
    assert (newest["before"]["limit"], newest["after"]["limit"]) == (3, 5)
    cells = await rows.first.locator("td").all_inner_texts()
    assert (
        cells[1:4] == [(await get(live, "/v1/me"))["subject"], "projects.put", "audited"]
        and newest["actor"] == cells[1]
    )
    assert cells[5].split() == ["limit", "3", "→", "5"]


@operator_task("create_and_revoke_a_token")
async def test_create_and_revoke_a_token(console: Console, live: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "kim", "kind": "user"})
    hands = await console.open("admin/tokens")
    await hands.click("button", "New token")
    await hands.fill("Identity", "kim")
    await hands.click("button", "Create token")
    value = await console.page.get_by_role("dialog").locator("pre.shown-once").inner_text()
    headers = {"Authorization": f"Bearer {value.strip()}"}
    assert (await live.http.get("/v1/me", headers=headers)).json()["subject"] == "kim"
    (made,) = (await get(live, "/v1/tokens", subject="kim"))["tokens"]
    hands = await console.open("admin/tokens")
    await hands.click("button", f"Revoke {made['name']}")
    await hands.click("button", "Revoke token")
    await expect(console.page.get_by_role("cell", name="revoked")).to_be_visible()
    assert (await live.http.get("/v1/me", headers=headers)).status_code == 401


@operator_task("add_and_remove_a_member")
async def test_add_and_remove_a_member(console: Console, live: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "zoe", "kind": "user"})
    hands = await console.open("admin/members?project=team")
    await hands.click("button", "Add member")
    await hands.fill("Identity", "zoe")
    await hands.click("button", "Add member to project")
    await expect(console.page.get_by_role("button", name="Remove zoe")).to_be_visible()
    members = (await get(live, "/v1/projects/team/members"))["members"]
    assert [(each["subject"], each["role"]) for each in members] == [("zoe", "viewer")]
    hands = await console.open("admin/members?project=team")
    await hands.click("button", "Remove zoe")
    await hands.click("button", "Remove member")
    await expect(console.page.get_by_role("heading", name="team has no members")).to_be_visible()
    assert (await get(live, "/v1/projects/team/members"))["members"] == []
