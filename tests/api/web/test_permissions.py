"""Permissions: every route with every kind of sender. The routes are discovered, so that a new one is tested, too."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from regroup.api.app import openapi
from regroup.api.web.access import OPEN_PATHS
from regroup.api.web.routes.dependencies import ForAnyProject, ForCluster, ForEveryone, ForJob, ForProject
from regroup.service.domain.credentials.api_tokens import TokenParts, generate_token
from regroup.service.domain.identity import Identity, IdentityKind, Membership, Role
from regroup.service.policy.access.decision import is_allowed, is_allowed_in_cluster, is_allowed_somewhere
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow

Requirement: TypeAlias = ForJob | ForProject | ForAnyProject | ForCluster | ForEveryone
_KINDS = (ForJob, ForProject, ForAnyProject, ForCluster, ForEveryone)
_FAR = 4e9  # Unix seconds
PAGES = {("GET", "/docs"), ("GET", "/docs/{asset}"), ("GET", "/sign-in")}
"""Routes for people, which the description of the API leaves out."""


@dataclass(frozen=True)
class Walked:
    """A method of a path, with the permission that its route declares."""

    method: str
    path: str
    required: tuple[Requirement, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def requirements(dependant: Dependant) -> Iterator[Requirement]:
    """Yield the declared permissions of a route."""
    if isinstance(dependant.call, _KINDS):
        yield dependant.call
    for each in dependant.dependencies:
        yield from requirements(each)


def walk(routes: Sequence[Any]) -> Iterator[Walked]:
    """Yield all operations of an app, also those of the routers that it includes."""
    for route in routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield Walked(method, route.path_format, tuple(set(requirements(route.dependant))))
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from walk(included.routes)


ROLES = {
    "viewer": Identity("viewer", IdentityKind.USER, {"own": Membership(Role.VIEWER)}),
    "editor": Identity("editor", IdentityKind.USER, {"own": Membership(Role.EDITOR)}),
    "admin": Identity("admin", IdentityKind.USER, {"own": Membership(Role.ADMIN)}),
    "granted": Identity("granted", IdentityKind.USER, {"own": Membership(Role.VIEWER, frozenset({"exec", "logs"}))}),
    "stranger": Identity("stranger", IdentityKind.USER, {"other": Membership(Role.ADMIN)}),
    "newcomer": Identity("newcomer", IdentityKind.USER),
    "scraper": Identity("scraper", IdentityKind.USER, permissions=frozenset({"metrics"})),
    "on-call": Identity("on-call", IdentityKind.USER, permissions=frozenset({"nodes:write", "projects:write"})),
    "operator": Identity("operator", IdentityKind.USER, everywhere=Role.ADMIN, is_operator=True),
}


@pytest.fixture
async def people(live: Any) -> dict[str, TokenParts]:
    """Create one identity with a token for each of `ROLES`, and a job in the project `own`; return the tokens."""
    tokens: dict[str, TokenParts] = {}
    for name, identity in ROLES.items():
        store, tokens[name] = live.store.identities, generate_token()
        row = IdentityRow(name, IdentityKind.USER, None, identity.is_operator, 0.0, "test")
        await store.create_identity(replace(row, permissions=identity.permissions))
        for project, membership in identity.memberships.items():
            await store.put_member(MemberRow(project, name, membership, 0.0, "test"))
        digest, now = tokens[name].digest, live.services.clock()
        await store.create_token(TokenRow(tokens[name].id, name, "", digest, None, None, now, "test", now + 600))
    await live.submit(name="gpt", project="own")
    return tokens


def filled(path: str) -> str:
    """Return the path with values that exist, or that have the right form."""
    values = {"job": "gpt", "name": "own", "number": "1", "step": "1", "subject": "newcomer", "upload": f"{'0' * 64}-1"}
    return re.sub(r"{(\w+)}", lambda match: values.get(match[1], "n0"), path)


async def answer(live: Any, walked: Walked, token: str | None) -> httpx2.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        return await http.request(
            walked.method, filled(walked.path), params={"project": "own"} if "{job}" in walked.path else {}
        )


def expected(required: Requirement, identity: Identity) -> str:
    """Return the code of the refusal, or an empty text if the sender is allowed."""
    sees = identity.everywhere is not None or "own" in identity.memberships
    match required:
        case ForJob(permission) | ForProject(permission):
            if not sees:
                return "not_found"
            return "" if is_allowed(identity, permission, "own") else "forbidden"
        case ForAnyProject(permission):
            return "" if is_allowed_somewhere(identity, permission) else "forbidden"
        case ForCluster(permission):
            return "" if is_allowed_in_cluster(identity, permission) else "forbidden"
        case ForEveryone():
            return ""


async def test_each_route_declares_one_permission(live: Any) -> None:
    walked = list(walk(live.app.routes))
    documented = {(method.upper(), path) for path, methods in openapi()["paths"].items() for method in methods}
    assert {(each.method, each.path) for each in walked} == documented | PAGES and len(walked) > 55
    assert [str(each) for each in walked if len(each.required) != (0 if each.path in OPEN_PATHS else 1)] == []


def test_a_route_without_a_permission_is_found() -> None:
    """Show that the test above can fail."""
    app = FastAPI()

    @app.get("/v1/new")
    async def new() -> None:
        """Do nothing."""

    assert [(str(each), each.required) for each in walk(app.routes)] == [("GET /v1/new", ())]


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_gets_what_its_permissions_say(live: Any, people: dict[str, TokenParts], role: str) -> None:
    for walked in walk(live.app.routes):
        if walked.path in OPEN_PATHS or walked.path.endswith("/identities/{subject}"):
            continue
        (required,) = walked.required
        code, found = expected(required, ROLES[role]), await answer(live, walked, people[role].value)
        problem = found.json() if found.status_code >= 400 else {}
        what = (str(walked), role, found.status_code, problem)
        match code:
            case "":
                assert found.status_code not in (401, 403) or isinstance(required, ForEveryone), what
            case "forbidden":
                assert (found.status_code, problem["code"]) == (403, "forbidden"), what
                assert "does not have the permission" in problem["detail"], what
            case _:
                assert (found.status_code, problem["code"]) == (404, "not_found"), what


async def test_a_hidden_job_answers_as_one_that_does_not_exist(live: Any, people: dict[str, TokenParts]) -> None:
    job_id = (await live.http.get("/v1/jobs/gpt", params={"project": "own"})).json()["id"]
    token = {"Authorization": f"Bearer {people['stranger'].value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=token, trust_env=False) as http:
        hidden = (await http.get(f"/v1/jobs/{job_id}")).json()
        missing = (await http.get(f"/v1/jobs/{job_id[:-1]}x")).json()
        named = (await http.get("/v1/jobs/gpt", params={"project": "own"})).json()
    assert hidden["detail"].replace(job_id, "J") == missing["detail"].replace(f"{job_id[:-1]}x", "J")
    assert (named["status"], hidden["status"]) == (404, 404)


@pytest.mark.parametrize("kind", ["no token", "another token", "expired", "revoked", "disabled", "of another server"])
async def test_no_route_but_the_probes_answers_without_a_valid_token(
    live: Any, people: dict[str, TokenParts], kind: str
) -> None:
    token: str | None = people["operator"].value
    match kind:
        case "no token":
            token = None
        case "another token":
            token = "x" * 43
        case "expired":
            parts, token = generate_token(), None
            row = TokenRow(parts.id, "operator", "", parts.digest, None, None, 0.0, "test", expires_at=1.0)
            await live.store.identities.create_token(row)
            token = parts.value
        case "revoked":
            await live.store.identities.revoke_token(people["operator"].id, 1.0)
        case "disabled":
            await live.store.identities.change_identity("operator", disabled_at=1.0)
        case _:
            token = generate_token().value
    for walked in walk(live.app.routes):
        found = await answer(live, walked, token)
        assert found.status_code == (200 if walked.path in OPEN_PATHS else 401), (str(walked), found.text)


# ------------------------------------------------------------ lists and references


async def test_lists_show_only_what_the_sender_sees(live: Any, people: dict[str, TokenParts]) -> None:
    await live.submit(name="secret", project="other")
    shown: dict[str, tuple[list[str], list[str]]] = {}
    for role in ("viewer", "stranger", "newcomer", "operator"):
        token = {"Authorization": f"Bearer {people[role].value}"}
        async with httpx2.AsyncClient(base_url=live.url, headers=token, trust_env=False) as http:
            jobs = [job["name"] for job in (await http.get("/v1/jobs")).json()["jobs"]]
            projects = [each["name"] for each in (await http.get("/v1/projects")).json()["projects"]]
            assert (await http.get("/v1/jobs", params={"project": "none"})).json()["jobs"] == []
            shown[role] = (sorted(jobs), projects)
    assert shown == {
        "viewer": (["gpt"], ["own"]),
        "stranger": (["secret"], ["other"]),
        "newcomer": ([], []),
        "operator": (["gpt", "secret"], ["other", "own"]),
    }


@pytest.mark.parametrize("field", ["depends_on", "resume_from"])
async def test_a_spec_cannot_refer_to_a_job_of_another_project(
    live: Any, people: dict[str, TokenParts], make_spec: Any, field: str
) -> None:
    job_id = (await live.http.get("/v1/jobs/gpt", params={"project": "own"})).json()["id"]
    value = [job_id] if field == "depends_on" else f"{job_id}@latest"
    token = {"Authorization": f"Bearer {people['stranger'].value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=token, trust_env=False) as http:
        found = await http.post("/v1/jobs", json=make_spec(project="other", **{field: value}))
    assert found.status_code == 422 and "no job with id" in found.json()["detail"], found.text


@pytest.mark.parametrize(
    ("role", "fields", "code"),
    [
        ("viewer", {}, "forbidden"),
        ("editor", {}, ""),
        ("stranger", {}, "not_found"),
        ("newcomer", {}, "not_found"),
        ("operator", {}, ""),
        ("editor", {"priority": "high"}, "forbidden"),
        ("admin", {"priority": "critical"}, ""),
        ("editor", {"faults": [{"do": "sigkill", "at": {"rank": 0, "step": 1}}]}, "forbidden"),
        ("editor", {"disable_detectors": ["hang"]}, "forbidden"),
    ],
)
async def test_a_submission_needs_permissions_by_its_content(
    live: Any, people: dict[str, TokenParts], make_spec: Any, role: str, fields: Any, code: str
) -> None:
    token = {"Authorization": f"Bearer {people[role].value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=token, trust_env=False) as http:
        for path in ("/v1/spec/validate", "/v1/jobs"):
            found = await http.post(path, json=make_spec(name="new", project="own", **fields))
            assert (found.json().get("code", ""), path) == (code, path), found.text


async def test_the_actor_of_an_event_is_the_sender(live: Any, people: dict[str, TokenParts]) -> None:
    token = {"Authorization": f"Bearer {people['editor'].value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=token, trust_env=False) as http:
        await http.post("/v1/jobs/gpt/cancel", params={"project": "own"})
        events = (await http.get("/v1/jobs/gpt/events", params={"project": "own"})).json()["events"]
    assert events[-1]["actor"] == "editor"
