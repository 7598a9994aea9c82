"""Secrets over HTTP: written and never read, for admins; a job that names one needs a permission of its own."""

import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regroup.api.schemas.secrets import MAX_BYTES, MIN_CHARACTERS
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.credentials.keyring import no_keys
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow

PATH = "/v1/projects/vision/secrets"
VALUE = "hunter2-4f1d09c6"
PART = "4f1d09c6"


async def put(live: Any, name: str = "hf-token", value: object = VALUE, **options: Any) -> Any:
    return await live.http.put(f"{PATH}/{name}", json={"value": value}, **options)


async def test_a_value_is_written_and_never_read(live: Any) -> None:
    created = await put(live)
    assert created.status_code == 200, created.text
    shown = created.json()
    assert (shown["name"], shown["project"], shown["version"], shown["used_at"]) == ("hf-token", "vision", 1, None)
    assert shown["created_by"] == shown["updated_by"] and created.headers["etag"] == shown["etag"]
    again = (await put(live, value=f"{VALUE}-2")).json()
    assert again["version"] == 2 and again["etag"] != shown["etag"] and again["created_at"] == shown["created_at"]
    answers = [
        await live.http.get(each) for each in (PATH, f"{PATH}/hf-token", "/v1/audit", "/v1/audit?project=vision")
    ]
    for answer in (created, *answers):
        assert answer.status_code == 200 and PART not in answer.text and "sealed" not in answer.text
    assert answers[0].json() == {"secrets": [again]} and answers[1].json() == again
    assert (await live.http.delete(f"{PATH}/hf-token")).status_code == 204
    assert (await live.http.get(f"{PATH}/hf-token")).status_code == 404
    assert (await live.http.delete(f"{PATH}/hf-token")).status_code == 404


async def test_no_file_of_the_server_has_the_value(live: Any) -> None:
    await put(live)
    await live.submit(project="vision", secrets={"HF_TOKEN": {"from_project": "hf-token"}})
    folder: Any = live.services.settings.state_dir
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name.startswith("regroup.db") for path in files)
    assert [path for path in files if PART.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"value": "abc"}, "/value"),
        ({"value": "   \n"}, "/value"),
        ({"value": PART + "x" * MAX_BYTES}, "/value"),
        ({"value": PART + "é" * (MAX_BYTES // 2)}, "/value"),
        ({"value": f"{PART}\0"}, "/value"),
        ({"value": 40_819_096}, "/value"),
        ({"value": [PART]}, "/value"),
        ({"value": VALUE, PART: "x"}, f"/{PART}"),
        ({"values": VALUE}, "/value"),
        (VALUE, ""),
        ({}, "/value"),
    ],
)
async def test_a_wrong_value_is_refused_without_a_part_of_it(live: Any, body: Any, pointer: str) -> None:
    answer = await live.http.put(f"{PATH}/hf-token", json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert pointer in [each["pointer"] for each in problem["errors"]]
    assert all(each["value"] is None for each in problem["errors"])
    assert PART not in answer.text.replace(f"/{PART}", "") and "40819096" not in answer.text


@pytest.mark.parametrize("name", ["a" * 101, "-a", "a.", "a b", "%C3%A9", "a%2Fb", "%00"])
async def test_a_wrong_name_is_refused(live: Any, name: str) -> None:
    answer = await live.http.put(f"{PATH}/{name}", json={"value": VALUE})
    assert answer.status_code in (400, 404, 405, 422) and PART not in answer.text
    assert (await live.http.get(PATH)).json() == {"secrets": []}


names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", fullmatch=True)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=400)


@given(names, values)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_every_name_and_value_within_the_bounds_is_stored(live: Any, name: str, value: str) -> None:
    answer = await put(live, name, value)
    if len(value.strip()) < MIN_CHARACTERS:
        assert answer.status_code == 422
        return
    assert answer.status_code == 200, answer.text
    row = await live.store.secrets.secret("vision", name)
    assert live.services.keys().open(row.sealed, row.owner) == value
    await live.http.delete(f"{PATH}/{name}")


async def test_conditions_and_dry_runs_apply(live: Any) -> None:
    tried = await put(live, params={"dry_run": True})
    assert tried.status_code == 200 and tried.headers["dry-run"] == "true"
    assert (await live.http.get(f"{PATH}/hf-token")).status_code == 404
    refused = await put(live, headers={"If-Match": "*"})
    assert refused.status_code == 412, refused.text
    first = (await put(live)).json()["etag"]
    second = (await put(live, headers={"If-Match": first})).json()["etag"]
    assert (await put(live, headers={"If-Match": first})).status_code == 412
    gone = await live.http.delete(f"{PATH}/hf-token", headers={"If-Match": second})
    assert gone.status_code == 204


async def test_a_job_with_an_unknown_secret_is_refused_with_the_remedy(
    live: Any, make_spec: Callable[..., Any]
) -> None:
    await put(live, "other")
    spec = make_spec(project="vision", secrets={"HF_TOKEN": {"from_project": "hf-token"}})
    for path in ("/v1/jobs", "/v1/spec/validate"):
        answer = await live.http.post(path, json=spec)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert error["pointer"] == "/secrets/HF_TOKEN/from_project" and error["value"] is None
        assert "`regroup secret set hf-token --project vision`" in error["detail"]
    await put(live)
    job = await live.submit(project="vision", secrets=spec["secrets"])
    assert job["spec"]["secrets"]["HF_TOKEN"]["from_project"] == "hf-token"
    elsewhere = await live.http.post("/v1/jobs", json={**spec, "project": "speech"})
    assert elsewhere.status_code == 422, "a secret belongs to one project"


@pytest.fixture
async def people(live: Any) -> AsyncIterator[Callable[..., Any]]:
    """Create a member of a project and return an HTTP client with a token of that identity."""
    opened: list[httpx2.AsyncClient] = []

    async def add(name: str, project: str, role: Role, *permissions: str) -> httpx2.AsyncClient:
        parts, row = generate_token(), IdentityRow(name, IdentityKind.USER, None, False, 1.0, "test")
        await live.store.identities.create_identity(row)
        membership = Membership(role, frozenset(permissions))
        await live.store.identities.put_member(MemberRow(project, name, membership, 1.0, "test"))
        token = TokenRow(parts.id, name, "", parts.digest, None, None, 1.0, "test")
        await live.store.identities.create_token(dataclasses.replace(token, expires_at=4e9))
        headers = {"Authorization": f"Bearer {parts.value}"}
        opened.append(httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False))
        return opened[-1]

    yield add
    for http in opened:
        await http.aclose()


async def test_roles_list_set_and_use_secrets_separately(
    live: Any, people: Callable[..., Any], make_spec: Callable[..., Any]
) -> None:
    await put(live)
    spec = make_spec(secrets={"HF_TOKEN": {"from_project": "hf-token"}}, project="vision")
    found: dict[str, list[int]] = {}
    for name, project, role, permissions in (
        ("vic", "vision", Role.VIEWER, ()), ("eve", "vision", Role.EDITOR, ()),
        ("uma", "vision", Role.EDITOR, ("secrets:hf-token",)), ("una", "vision", Role.EDITOR, ("secrets:write",)),
        ("ana", "vision", Role.ADMIN, ()), ("bob", "speech", Role.ADMIN, ()),
    ):  # fmt: skip
        http = await people(name, project, role, *permissions)
        listed, written = await http.get(PATH), await http.put(f"{PATH}/of-{name}", json={"value": VALUE})
        used = await http.post("/v1/jobs", json={**spec, "name": name})
        rotated = await http.post("/v1/secrets/reencrypt")
        found[name] = [answer.status_code for answer in (listed, written, used, rotated)]
    assert found == {
        "vic": [403, 403, 403, 403], "eve": [200, 403, 403, 403], "uma": [200, 403, 201, 403],
        "una": [200, 403, 403, 403], "ana": [200, 200, 201, 403], "bob": [404, 404, 404, 403],
    }  # fmt: skip


async def test_without_a_key_the_server_refuses_and_stays_up(live: Any) -> None:
    await put(live)
    object.__setattr__(live.services, "keys", no_keys)
    answer = await put(live)
    assert answer.status_code == 409 and "REGROUP_SECRETS_KEY_FILE" in answer.json()["detail"]
    assert [each["version"] for each in (await live.http.get(PATH)).json()["secrets"]] == [1]
    assert (await live.http.post("/v1/secrets/reencrypt")).status_code == 409


async def test_the_key_is_rotated_without_a_restart(live: Any) -> None:
    await put(live)
    hook = await live.http.post("/v1/projects/vision/hooks", json={"name": "ci", "url": "https://ci.example.com/in"})
    file: Any = live.services.settings.state_dir / "secrets.key"
    former = file.read_text().splitlines()[-1]
    file.write_text(f"{'ab' * 32}\n{former}\n")
    done = (await live.http.post("/v1/secrets/reencrypt")).json()
    assert (done["encrypted"], done["unreadable"], done["is_complete"]) == (2, 0, True)
    file.write_text(f"{'ab' * 32}\n")
    row = await live.store.secrets.secret("vision", "hf-token")
    assert live.services.keys().open(row.sealed, row.owner) == VALUE
    stored = await live.store.hooks.hook("vision", hook.json()["id"])
    assert hook.json()["secret"] not in json.dumps([stored.secret])
    assert live.services.keys().open(stored.secret, stored.owner) == hook.json()["secret"]
