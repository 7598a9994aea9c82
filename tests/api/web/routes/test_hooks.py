"""Hooks over HTTP: create, change, test and redeliver; secrets are shown once; other projects see nothing."""

import dataclasses
from typing import Any

import httpx2
import pytest

from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.credentials.keyring import read_stored
from regroup.service.domain.hooks import DEFAULT_EVENTS, DeliveryState
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.policy.hooks.retries import Verdict, attempt_of_status
from regroup.service.store.hooks.deliveries import MAX_REQUESTED
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow

PATH = "/v1/projects/vision/hooks"
OWN_SECRET = "whsec_" + "A" * 32
NEW = {"name": "ci", "url": "https://ci.example.com/in?token=hidden"}


async def created(live: Any, **fields: Any) -> dict[str, Any]:
    answer = await live.http.post(PATH, json={**NEW, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_secret_is_shown_once_and_never_read(live: Any) -> None:
    issued = await created(live, labels={"team": "nlp"})
    assert issued["secret"].startswith("whsec_") and issued["id"].startswith("hook_")
    assert (issued["kind"], issued["events"], issued["is_enabled"]) == ("cloudevents", list(DEFAULT_EVENTS), True)
    assert issued["url"] == "https://ci.example.com/in?…" and issued["labels"] == {"team": "nlp"}
    rotated = (await live.http.post(f"{PATH}/{issued['id']}/rotate")).json()
    assert rotated["secret"] not in (None, issued["secret"])
    assert rotated["former_until"] == pytest.approx(live.services.clock() + 86_400, abs=60)
    answers = [await live.http.get(each) for each in (PATH, f"{PATH}/{issued['id']}", "/v1/audit")]
    for answer in answers:
        assert answer.status_code == 200 and "whsec_" not in answer.text and "hidden" not in answer.text
    assert [each["id"] for each in answers[0].json()["hooks"]] == [issued["id"]]


async def test_chats_have_no_secret_and_their_url_is_hidden(live: Any) -> None:
    slack = await created(live, kind="slack", url="https://hooks.slack.com/services/T0/B0/hidden")
    assert (slack["secret"], slack["url"]) == (None, "https://hooks.slack.com/…")
    answer = await live.http.post(f"{PATH}/{slack['id']}/rotate")
    assert answer.status_code == 409 and "has no secret" in answer.json()["detail"]


async def test_a_hook_is_changed_disabled_and_deleted(live: Any) -> None:
    path = f"{PATH}/{(await created(live))['id']}"
    changed = await live.http.patch(path, json={"events": ["incident", "incident"], "labels": {"a": "b"}, "name": "x"})
    assert changed.status_code == 200, changed.text
    shown = changed.json()
    assert (shown["events"], shown["labels"], shown["name"]) == (["incident"], {"a": "b"}, "x")
    disabled = (await live.http.patch(path, json={"is_enabled": False})).json()
    assert disabled == {**shown, "is_enabled": False, "etag": disabled["etag"]} and disabled["etag"] != shown["etag"]
    refused = await live.http.post(f"{path}/test")
    assert refused.status_code == 409 and "is disabled" in refused.json()["detail"]
    assert (await live.http.patch(path, json={})).json() == disabled, "nothing is changed"
    assert (await live.http.delete(path)).status_code == 204
    assert (await live.http.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"url": "http://ci.example.com/in"}, "/url"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "/url"),
        ({"url": "https://user:hidden@ci.example.com"}, "/url"),
        ({"url": None}, "/url"),
        ({"events": ["step"]}, "/events/0"),
        ({"events": ["state", "state:LOST"]}, "/events/1"),
        ({"events": []}, "/events"),
        ({"kind": "email", "url": None, "recipients": ["ana@example.com"]}, "/kind"),
        ({"recipients": ["ana@example.com"]}, "/recipients"),
        ({"kind": "fax"}, "/kind"),
        ({"name": ""}, "/name"),
        ({"name": "two\nlines"}, "/name"),
        ({"labels": {f"k{number}": "v" for number in range(11)}}, "/labels"),
        ({"secret": "mine"}, "/secret"),
        ({"secret": f"whsec_{'A' * 28}"}, "/secret"),
        ({"secret": OWN_SECRET + "="}, "/secret"),
        ({"kind": "slack", "secret": OWN_SECRET}, "/secret"),
        ({"secrets": OWN_SECRET}, "/secrets"),
    ],
)
async def test_a_wrong_hook_is_refused_by_field(live: Any, fields: dict[str, Any], pointer: str) -> None:
    answer = await live.http.post(PATH, json={**NEW, **fields})
    assert answer.status_code == 422, answer.text
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert "hidden" not in answer.text and "whsec_A" not in answer.text


async def test_a_secret_of_the_sender_is_used_and_not_shown(live: Any) -> None:
    hook = await created(live, secret=OWN_SECRET, is_enabled=False)
    assert (hook["secret"], hook["is_enabled"]) == (None, False)
    path = f"{PATH}/{hook['id']}"
    row = await live.store.hooks.hook("vision", hook["id"])
    assert read_stored(live.services.keys, row.secret, row.owner) == OWN_SECRET
    same = (await live.http.post(f"{path}/rotate", json={"secret": OWN_SECRET})).json()
    assert (same["former_until"], same["secret"]) == (None, None), "it has this secret already"
    other = "whsec_" + "B" * 32
    rotated = (await live.http.post(f"{path}/rotate", json={"secret": other})).json()
    assert rotated["former_until"] and rotated["secret"] is None
    row = await live.store.hooks.hook("vision", hook["id"])
    assert read_stored(live.services.keys, row.secret, row.owner) == other
    made = (await live.http.post(f"{path}/rotate", json={})).json()
    assert made["secret"].startswith("whsec_") and made["secret"] not in (other, OWN_SECRET)
    audit = await live.http.get("/v1/audit")
    assert "whsec_" not in audit.text
    wrong = await live.http.post(f"{path}/rotate", json={"secret": "whsec_AAAA"})
    assert wrong.status_code == 422 and "whsec_AAAA" not in wrong.text


async def test_a_change_is_checked_like_a_new_hook(live: Any) -> None:
    path = f"{PATH}/{(await created(live))['id']}"
    for change in ({"url": "https://127.0.0.1/"}, {"events": ["nothing"]}, {"recipients": ["ana@example.com"]}):
        assert (await live.http.patch(path, json=change)).status_code == 422, change
    assert (await live.http.get(path)).json()["url"] == "https://ci.example.com/in?…"


async def test_events_of_the_project_wait_in_the_log(live: Any) -> None:
    hook = await created(live, events=["state"])
    job = await live.submit(project="vision", name="gpt")
    await live.submit(project="speech", name="other")
    (delivery,) = (await live.http.get(f"{PATH}/{hook['id']}/deliveries")).json()["deliveries"]
    assert (delivery["job_id"], delivery["job_name"], delivery["number"]) == (job["id"], "gpt", 1)
    assert (delivery["type"], delivery["state"], delivery["attempts"]) == ("state", "pending", 0)
    assert delivery["message_id"] == f"{job['id']}-1" and delivery["next_attempt_at"] == delivery["created_at"]
    one = await live.http.get(f"{PATH}/{hook['id']}/deliveries/{delivery['id']}")
    assert one.json() == delivery


async def test_a_test_and_a_redelivery_are_new_deliveries(live: Any) -> None:
    path = f"{PATH}/{(await created(live))['id']}"
    tested = await live.http.post(f"{path}/test")
    assert tested.status_code == 202 and tested.json()["type"] == "test" and tested.json()["job_id"] is None
    store = live.store.hooks.deliveries
    (claimed,) = await store.claim(live.lease, busy={}, per_hook=4, limit=4, now=live.services.clock())
    await store.finish(claimed, attempt_of_status(404), Verdict(DeliveryState.FAILED), 0.5, now=live.services.clock())
    failed = (await live.http.get(f"{path}/deliveries", params={"state": "failed"})).json()["deliveries"]
    assert [(each["status_code"], each["error"]) for each in failed] == [(404, "the receiver answered 404")]
    again = await live.http.post(f"{path}/deliveries/{failed[0]['id']}/redeliver")
    assert again.status_code == 202, again.text
    assert (again.json()["redelivery_of"], again.json()["message_id"]) == (failed[0]["id"], failed[0]["message_id"])
    assert (await live.http.post(f"{path}/deliveries/999/redeliver")).status_code == 404


async def test_pages_contain_each_delivery_once(live: Any) -> None:
    path = f"{PATH}/{(await created(live))['id']}"
    ids = [(await live.http.post(f"{path}/test")).json()["id"] for _ in range(5)]
    found, token = [], ""
    for _ in range(3):
        params = {"page_size": 2, "page_token": token}
        answer = (await live.http.get(f"{path}/deliveries", params=params)).json()
        found += [each["id"] for each in answer["deliveries"]]
        token = answer["next_page_token"]
    assert found == ids[::-1] and token == ""
    first = (await live.http.get(f"{path}/deliveries", params={"page_size": 2})).json()["next_page_token"]
    wrong = await live.http.get(f"{path}/deliveries", params={"page_token": first, "state": "failed"})
    assert wrong.status_code == 400


async def test_requested_deliveries_have_a_bound(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_REQUESTED == 1000
    monkeypatch.setattr("regroup.service.store.hooks.deliveries.MAX_REQUESTED", 2)
    path = f"{PATH}/{(await created(live))['id']}"
    assert [(await live.http.post(f"{path}/test")).status_code for _ in range(3)] == [202, 202, 409]


async def test_roles_read_or_write_and_other_projects_see_nothing(live: Any) -> None:
    hook = await created(live)
    path = f"{PATH}/{hook['id']}"
    found: dict[str, list[int]] = {}
    for name, project, role in (
        ("eve", "vision", Role.EDITOR), ("vic", "vision", Role.VIEWER), ("ana", "vision", Role.ADMIN),
        ("bob", "speech", Role.ADMIN),
    ):  # fmt: skip
        parts, row = generate_token(), IdentityRow(name, IdentityKind.USER, None, False, 1.0, "test")
        await live.store.identities.create_identity(row)
        await live.store.identities.put_member(MemberRow(project, name, Membership(role), 1.0, "test"))
        token = TokenRow(parts.id, name, "", parts.digest, None, None, 1.0, "test")
        await live.store.identities.create_token(dataclasses.replace(token, expires_at=4e9))
        headers = {"Authorization": f"Bearer {parts.value}"}
        async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
            answers = [await http.get(PATH), await http.get(f"{path}/deliveries"), await http.post(f"{path}/test")]
            found[name] = [answer.status_code for answer in answers]
            if name == "bob":  # in his own project, the hook does not exist
                other = path.replace("vision", "speech")
                assert (await http.get(other)).status_code == (await http.delete(other)).status_code == 404
    assert found == {"eve": [200, 200, 403], "vic": [403, 403, 403], "ana": [200, 200, 202], "bob": [404, 404, 404]}
