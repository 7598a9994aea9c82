"""Identities, members and tokens with the API: who may create, change and see them."""

from typing import Any

import httpx2
import pytest


class Person:
    """A sender with a token."""

    def __init__(self, live: Any, token: str) -> None:
        self._url, self._token = live.url, token

    async def send(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx2.AsyncClient(base_url=self._url, headers=headers, trust_env=False) as http:
            return await http.request(method, path, json=body)

    async def code(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the code of the problem."""
        answer = await self.send(method, path, body)
        return answer.status_code, answer.json().get("code", "") if answer.content else ""


@pytest.fixture
def owner(live: Any) -> Person:
    return Person(live, live.token)


@pytest.fixture
async def ana(live: Any, owner: Person) -> Person:
    """Return an admin of the project `vision`."""
    assert (await owner.send("POST", "/v1/identities", {"subject": "ana"})).status_code == 201
    member = await owner.send("PUT", "/v1/projects/vision/members/ana", {"role": "admin"})
    assert member.status_code == 200, member.text
    issued = await owner.send("POST", "/v1/tokens", {"name": "laptop", "subject": "ana"})
    assert issued.status_code == 201, issued.text
    return Person(live, issued.json()["value"])


async def test_the_owner_and_a_person_see_who_they_are(owner: Person, ana: Person) -> None:
    me = (await owner.send("GET", "/v1/me")).json()
    assert (me["kind"], me["is_operator"], me["everywhere"], me["token_id"]) == ("owner", True, "admin", None)
    me = (await ana.send("GET", "/v1/me")).json()
    assert me["memberships"] == [{"project": "vision", "role": "admin", "permissions": []}]
    assert (me["subject"], me["is_operator"], me["everywhere"]) == ("ana", False, None) and me["token_id"]


async def test_a_token_is_shown_once_and_its_last_use_is_recorded(live: Any, ana: Person) -> None:
    issued = (await ana.send("POST", "/v1/tokens", {"name": "ci", "role": "viewer", "expires_in_s": 60})).json()
    assert issued["value"].startswith(f"rg_{issued['id']}_") and issued["created_by"] == "ana"
    assert issued["expires_at"] == pytest.approx(issued["created_at"] + 60)
    listed = await ana.send("GET", "/v1/tokens")
    assert issued["value"] not in listed.text and "digest" not in listed.text
    newest, first = listed.json()["tokens"]
    assert (newest["name"], newest["role"], newest["used_at"], first["name"]) == ("ci", "viewer", None, "laptop")
    assert first["used_at"] is not None
    stored = await live.store.identities.token(issued["id"])
    secret = issued["value"].removeprefix(f"rg_{issued['id']}_")  # which can contain "_" itself
    assert len(secret) > 40 and secret not in repr(stored)


async def test_a_revoked_token_and_a_disabled_person_are_refused_at_once(owner: Person, ana: Person) -> None:
    (token,) = (await ana.send("GET", "/v1/tokens")).json()["tokens"]
    assert await ana.code("GET", "/v1/jobs") == (200, "")
    assert (await owner.send("PATCH", "/v1/identities/ana", {"disabled": True})).json()["disabled_at"] is not None
    refused = await ana.send("GET", "/v1/jobs")
    assert refused.status_code == 401 and "'ana' is disabled" in refused.json()["detail"]
    assert (await owner.send("PATCH", "/v1/identities/ana", {"disabled": False})).json()["disabled_at"] is None
    assert await ana.code("DELETE", f"/v1/tokens/{token['id']}") == (200, "")
    refused = await ana.send("GET", "/v1/jobs")
    assert refused.status_code == 401 and "is revoked" in refused.json()["detail"]


async def test_a_person_who_leaves_a_project_loses_it_at_once(owner: Person, ana: Person) -> None:
    assert await ana.code("GET", "/v1/projects/vision") == (200, "")
    assert await owner.code("DELETE", "/v1/projects/vision/members/ana") == (204, "")
    assert await ana.code("GET", "/v1/projects/vision") == (404, "not_found")
    assert await owner.code("DELETE", "/v1/projects/vision/members/ana") == (404, "not_found")


async def test_an_admin_manages_members_and_service_accounts_of_its_project_only(owner: Person, ana: Person) -> None:
    account = {"subject": "ci", "kind": "service_account", "project": "vision", "role": "editor"}
    assert await ana.code("POST", "/v1/identities", account) == (201, "")
    assert await ana.code("POST", "/v1/identities", account) == (409, "conflict")
    assert await ana.code("POST", "/v1/tokens", {"name": "pipeline", "subject": "ci"}) == (201, "")
    members = (await ana.send("GET", "/v1/projects/vision/members")).json()["members"]
    assert [(each["subject"], each["role"]) for each in members] == [("ana", "admin"), ("ci", "editor")]
    assert await ana.code("POST", "/v1/identities", {"subject": "bob"}) == (403, "forbidden")
    assert await ana.code("POST", "/v1/identities", {**account, "subject": "x", "project": "speech"}) == (
        404,
        "not_found",
    )
    assert await ana.code("PUT", "/v1/projects/speech/members/ci", {"role": "admin"}) == (404, "not_found")
    assert await owner.code("PUT", "/v1/projects/speech/members/ci", {"role": "admin"}) == (409, "conflict")
    assert await ana.code("PATCH", "/v1/identities/ci", {"is_operator": True}) == (403, "forbidden")
    assert await owner.code("PATCH", "/v1/identities/ci", {"is_operator": True}) == (422, "invalid_spec")
    assert await ana.code("DELETE", "/v1/identities/ci") == (204, "")
    assert await ana.code("GET", "/v1/identities/ci") == (404, "not_found")


async def test_other_people_are_hidden(owner: Person, ana: Person) -> None:
    await owner.send("POST", "/v1/identities", {"subject": "bob"})
    issued = (await owner.send("POST", "/v1/tokens", {"name": "bob's", "subject": "bob"})).json()
    subjects = [each["subject"] for each in (await ana.send("GET", "/v1/identities")).json()["identities"]]
    assert subjects == ["ana"]
    for method, path, body in (
        ("GET", "/v1/identities/bob", None),
        ("DELETE", "/v1/identities/bob", None),
        ("POST", "/v1/tokens", {"name": "x", "subject": "bob"}),
        ("GET", "/v1/tokens?subject=bob", None),
        ("DELETE", f"/v1/tokens/{issued['id']}", None),
    ):
        assert await ana.code(method, path, body) == (404, "not_found"), path
    listed = [each["subject"] for each in (await owner.send("GET", "/v1/tokens")).json()["tokens"]]
    assert sorted(listed) == ["ana", "bob"]


async def test_a_limited_token_creates_no_other(ana: Person, live: Any) -> None:
    for limit in ({"role": "admin"}, {"project": "vision"}):
        issued = (await ana.send("POST", "/v1/tokens", {"name": "limited", **limit})).json()
        limited = Person(live, issued["value"])
        assert await limited.code("GET", "/v1/jobs") == (200, "")
        assert await limited.code("POST", "/v1/tokens", {"name": "more"}) == (403, "forbidden")
        assert await limited.code("GET", "/v1/identities/ana") == (200, "")
        assert (await limited.send("GET", "/v1/tokens")).json()["tokens"] == []
        assert await limited.code("DELETE", f"/v1/tokens/{issued['id']}") == (404, "not_found")


async def test_an_identity_cannot_end_itself(owner: Person, ana: Person) -> None:
    for method, body in (("PATCH", {"disabled": True}), ("DELETE", None)):
        assert await ana.code(method, "/v1/identities/ana", body) == (403, "forbidden")
    assert await owner.code("DELETE", "/v1/identities/ana") == (204, "")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"subject": "x", "kind": "owner"}, "/kind"),
        ({"subject": "x", "project": "vision"}, "/project"),
        ({"subject": "x", "kind": "service_account", "role": "editor"}, "/role"),
        ({"subject": "x", "kind": "service_account", "project": "vision", "is_operator": True}, "/is_operator"),
        ({"subject": "group:x"}, "/subject"),
        ({"subject": ""}, "/subject"),
        ({"subject": "two words"}, "/subject"),
    ],
)
async def test_contradictory_identities_are_refused_by_field(owner: Person, body: Any, pointer: str) -> None:
    answer = await owner.send("POST", "/v1/identities", body)
    assert answer.status_code == 422, answer.text
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


async def test_additional_permissions_are_checked_and_shown(owner: Person, ana: Person) -> None:
    member = {"role": "viewer", "permissions": ["exec", "secrets:hub"]}
    assert (await owner.send("PUT", "/v1/projects/vision/members/ana", member)).json()["permissions"] == member[
        "permissions"
    ]
    refused = await owner.send(
        "PUT", "/v1/projects/vision/members/ana", {"role": "viewer", "permissions": ["jobs:write"]}
    )
    assert refused.status_code == 422 and "use some of exec, faults, logs, priority:high" in refused.json()["detail"]
    missing = await owner.send("PUT", "/v1/projects/vision/members/bob", {"role": "viewer"})
    assert missing.status_code == 404 and "'bob'" in missing.json()["detail"]
    assert await owner.code("PUT", "/v1/projects/vision/members/group:researchers", {"role": "viewer"}) == (200, "")


async def test_the_name_of_a_group_may_be_a_path(owner: Person) -> None:
    path = "/v1/projects/vision/members/group:%2Fstaff%2Fresearch"
    member = (await owner.send("PUT", path, {"role": "viewer"})).json()
    listed = (await owner.send("GET", "/v1/projects/vision/members")).json()["members"]
    assert member["subject"] == "group:/staff/research" and member in listed
    assert await owner.code("DELETE", path) == (204, "")
    assert await owner.code("PUT", "/v1/projects/vision/members/", {"role": "viewer"}) == (422, "invalid_request")


async def test_the_owner_names_the_identity_of_a_token(owner: Person) -> None:
    refused = await owner.send("POST", "/v1/tokens", {"name": "mine"})
    assert refused.status_code == 422 and "the owner of the server needs no token" in refused.json()["detail"]
