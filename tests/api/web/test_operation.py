"""Conditions of changes with the API: dry runs, `If-Match` and keys of repeated requests, on every route."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError
from regroup.api.web.operation import CHANGING, OperationRoute, unconditional_reason
from regroup.api.web.routes import reference
from regroup.service.domain.topology import Node
from regroup.service.local.api_token import user_name

UNCONDITIONAL = {
    "POST /v1/jobs/{job}/exec": "runs a command and streams its output",
    "POST /v1/jobs/{job}/checkpoints/{step}/verify": "reads",
    "POST /v1/plans": "calculates",
    "POST /v1/what-if": "calculates",
    "POST /v1/spec/sizes": "calculates",
    "POST /v1/session-links": "creates a secret in memory, which is shown once",
    "POST /v1/spec/validate": "validates",
    "POST /v1/uploads": "stores bytes under their digest",
    "PATCH /v1/uploads/{upload}": "stores bytes under their digest",
}
"""Routes with the method of a change that change no object with a state, and why."""


def all_routes(routes: Any) -> Iterator[APIRoute]:
    """Yield the routes of an app, also those of the routers that it includes."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from all_routes(included.routes)


def parameters(dependant: Dependant) -> set[str]:
    found = {each.alias.lower() for each in (*dependant.query_params, *dependant.header_params)}
    return found.union(*(parameters(each) for each in dependant.dependencies))


def test_every_route_that_changes_something_accepts_conditions(live: Any) -> None:
    unconditional, changing = dict[str, str](), 0
    for route in all_routes(live.app.routes):
        assert isinstance(route, OperationRoute), f"{route.path}: its router needs route_class=OperationRoute"
        for method in sorted((route.methods or set()) & CHANGING):
            changing += 1
            accepted = parameters(route.dependant)
            if reason := unconditional_reason(route.endpoint):
                unconditional[f"{method} {route.path}"] = reason
                assert "dry_run" not in accepted
                continue
            required = {"dry_run", "if-match"} | ({"idempotency-key"} if method == "POST" else set())
            assert required <= accepted, f"{method} {route.path}"
    assert unconditional == UNCONDITIONAL and changing > 20


async def changes_of(live: Any, make_spec: Any) -> list[tuple[str, str, Any]]:
    """Create objects; return a request for each kind of change: method, path and body."""
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    live.cluster.add_node(Node("2" * 40, "local-2", "10.0.0.2", cpus=4, free_cpus=4))
    job = (await live.submit(name="waiting"))["id"]
    for subject in ("ana", "ben"):
        await live.http.post("/v1/identities", json={"subject": subject, "kind": "user"})
    await live.http.put("/v1/projects/vision", json={"limit": 8})
    await live.http.put("/v1/projects/vision/members/ana", json={"role": "viewer"})
    token = (await live.http.post("/v1/tokens", json={"name": "laptop", "subject": "ana"})).json()["id"]
    await live.http.put("/v1/projects/vision/secrets/old", json={"value": "first"})
    await live.http.post("/v1/nodes/local-2/drain", json={"deadline_s": 600})
    return [
        ("POST", "/v1/jobs", make_spec(name="another")),
        ("POST", f"/v1/jobs/{job}/cancel", None),
        ("POST", f"/v1/jobs/{job}/suspend", {"reason": "lunch"}),
        ("PUT", "/v1/projects/vision", {"limit": 16}),
        ("PUT", "/v1/projects/other", {"limit": 16}),
        ("DELETE", "/v1/projects/vision", None),
        ("POST", "/v1/identities", {"subject": "cleo", "kind": "user"}),
        ("POST", "/v1/identities", {"subject": "ci", "kind": "service_account", "project": "vision", "role": "editor"}),
        ("PATCH", "/v1/identities/ana", {"disabled": True, "is_operator": True}),
        ("DELETE", "/v1/identities/ana", None),
        ("PUT", "/v1/projects/vision/members/ben", {"role": "editor"}),
        ("DELETE", "/v1/projects/vision/members/ana", None),
        ("POST", "/v1/tokens", {"name": "phone", "subject": "ana"}),
        ("DELETE", f"/v1/tokens/{token}", None),
        ("PUT", "/v1/projects/vision/secrets/old", {"value": "another"}),
        ("PUT", "/v1/projects/vision/secrets/new", {"value": "another"}),
        ("DELETE", "/v1/projects/vision/secrets/old", None),
        ("POST", "/v1/nodes/local-1/cordon", {"reason": "fan"}),
        ("POST", "/v1/nodes/local-1/drain", {"deadline_s": 600}),
        ("DELETE", "/v1/nodes/local-2/drain", None),
    ]


async def state_of(live: Any) -> dict[str, Any]:
    """Return all that the API shows of the objects which these changes concern."""
    lists = (
        "jobs",
        "projects",
        "identities",
        "tokens",
        "nodes",
        "projects/vision/members",
        "projects/vision/secrets",
        "audit",
    )
    found = {name: (await live.http.get(f"/v1/{name}")).json() for name in lists}
    for node in ("local-1", "local-2"):
        found[node] = (await live.http.get(f"/v1/nodes/{node}/drain")).status_code
    for token in found["tokens"]["tokens"]:
        token.pop("used_at")
    return found


async def test_a_dry_run_answers_like_the_change_and_changes_nothing(live: Any, make_spec: Any) -> None:
    changes = await changes_of(live, make_spec)
    before = await state_of(live)
    for method, path, body in changes:
        tried = await live.http.request(method, path, json=body, params={"dry_run": True})
        assert tried.is_success and tried.headers["Dry-Run"] == "true", (method, path, tried.text)
        assert await state_of(live) == before, (method, path)
    for method, path, body in changes[:5]:
        tried = await live.http.request(method, path, json=body, params={"dry_run": True})
        made = await live.http.request(method, path, json=body)
        assert made.status_code == tried.status_code and "Dry-Run" not in made.headers
        if path.startswith("/v1/projects"):
            assert made.json() == tried.json() and made.json()["limit"] == 16, "the answer shows the result"
        assert await state_of(live) != before, (method, path)


async def test_a_dry_run_is_refused_as_the_change_would_be(live: Any, make_spec: Any) -> None:
    await live.submit(name="gpt")
    spec = make_spec(name="gpt")
    for params in ({"dry_run": True}, {}):
        taken = await live.http.post("/v1/jobs", json=spec, params=params)
        assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
    wrong = await live.http.post("/v1/plans", json={}, params={"dry_run": True})
    assert wrong.status_code == 422 and "unknown parameter" in wrong.text
    assert (await live.http.post("/v1/jobs", json=spec, params={"dry_run": "perhaps"})).status_code == 422


async def test_changes_after_a_dry_run_are_stored(live: Any) -> None:
    """Leave nothing open: the next change gets the only connection that writes."""
    for limit in range(1, 6):
        tried = live.http.put("/v1/projects/vision", json={"limit": 99}, params={"dry_run": True})
        made = live.http.put("/v1/projects/vision", json={"limit": limit})
        assert [each.status_code for each in await asyncio.gather(tried, made)] == [200, 200]
        assert (await live.http.get("/v1/projects/vision")).json()["limit"] == limit


@pytest.mark.parametrize(
    ("method", "path", "read", "body"),
    [
        ("PUT", "/v1/projects/vision", "/v1/projects/vision", {"limit": 16}),
        ("DELETE", "/v1/projects/vision", "/v1/projects/vision", None),
        ("PATCH", "/v1/identities/ana", "/v1/identities/ana", {"disabled": True}),
        ("DELETE", "/v1/identities/ana", "/v1/identities/ana", None),
        ("DELETE", "/v1/nodes/local-2/drain", "/v1/nodes/local-2/drain", None),
        ("POST", "/v1/nodes/local-2/drain", "/v1/nodes/local-2/drain", {"deadline_s": 60}),
    ],
)
async def test_a_change_of_another_state_than_the_client_saw_is_refused(
    live: Any, make_spec: Any, method: str, path: str, read: str, body: Any
) -> None:
    await changes_of(live, make_spec)
    seen = await live.http.get(read)
    assert seen.headers["ETag"] == seen.json()["etag"]
    for wrong in ('"0123456789"', 'W/"1"', "vision"):
        refused = await live.http.request(method, path, json=body, headers={"If-Match": wrong})
        assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed"), wrong
    assert (await live.http.get(read)).headers["ETag"] == seen.headers["ETag"]
    tags = f'"0123456789", {seen.headers["ETag"]}'
    made = await live.http.request(method, path, json=body, headers={"If-Match": tags})
    assert made.is_success, made.text
    assert made.headers.get("ETag") != seen.headers["ETag"]


async def test_entries_of_lists_have_the_tags_that_changes_compare(live: Any, make_spec: Any) -> None:
    await changes_of(live, make_spec)
    for name, path, body in (
        ("projects/vision/members", "PUT /v1/projects/vision/members/ana", {"role": "admin"}),
        ("tokens", "DELETE /v1/tokens/{id}", None),
        ("nodes", "POST /v1/nodes/{name}/cordon", {"reason": "fan"}),
    ):
        key = name.rpartition("/")[2]
        entry = (await live.http.get(f"/v1/{name}")).json()[key][0]
        method, _, place = path.partition(" ")
        place = place.format_map(entry)
        made = await live.http.request(method, place, json=body, headers={"If-Match": entry["etag"]})
        assert made.is_success and made.json()["etag"] != entry["etag"], made.text
        again = await live.http.request(method, place, json=body, headers={"If-Match": entry["etag"]})
        assert again.status_code == 412, path


async def test_any_state_matches_a_star_and_a_missing_object_matches_nothing(live: Any) -> None:
    star = {"If-Match": "*"}
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    assert (await live.http.post("/v1/nodes/local-1/cordon", headers=star)).status_code == 200
    assert (await live.http.put("/v1/projects/vision", json={"limit": 4}, headers=star)).status_code == 200
    await live.http.post("/v1/identities", json={"subject": "ana", "kind": "user"})
    member = "/v1/projects/vision/members/ana"
    absent = await live.http.put(member, json={"role": "viewer"}, headers=star)
    assert absent.status_code == 412 and "does not exist" in absent.text
    assert (await live.http.put(member, json={"role": "viewer"})).status_code == 200
    assert (await live.http.put(member, json={"role": "editor"}, headers=star)).status_code == 200


async def test_a_repeated_request_takes_effect_once(live: Any) -> None:
    body, key = {"subject": "ana", "kind": "user"}, {"Idempotency-Key": "k1"}
    first = await live.http.post("/v1/identities", json=body, headers=key)
    again = await live.http.post("/v1/identities", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201) and again.json() == first.json()
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"
    other = await live.http.post("/v1/identities", json={**body, "subject": "ben"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    unused = await live.http.post("/v1/identities", json=body, headers={"Idempotency-Key": "k2"})
    assert unused.status_code == 409, "another key is another request"
    ben = await live.http.post("/v1/identities", json={**body, "subject": "ben"}, headers={"Idempotency-Key": "k2"})
    assert ben.status_code == 201, "a refused request leaves its key unused"


async def test_concurrent_requests_with_one_key_take_effect_once(live: Any) -> None:
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    calls = (
        live.http.post("/v1/nodes/local-1/cordon", json={"reason": "fan"}, headers={"Idempotency-Key": "k"})
        for _ in range(6)
    )
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert [answer.status_code for answer in answers if "Idempotency-Replayed" not in answer.headers].count(200) == 1
    assert len(await live.store.nodes.events()) == 1


async def test_a_repeated_request_for_a_token_does_not_show_its_value(live: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "ana", "kind": "user"})
    body, key = {"name": "laptop", "subject": "ana"}, {"Idempotency-Key": "k1"}
    first = await live.http.post("/v1/tokens", json=body, headers=key)
    again = await live.http.post("/v1/tokens", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 409) and "was shown once" in again.text
    assert first.json()["value"] not in again.text
    assert len((await live.http.get("/v1/tokens")).json()["tokens"]) == 1
    stored = await live.store.idempotency.find(f"{user_name()}:POST /v1/tokens", "k1", now=live.services.clock())
    assert stored is not None and stored[1] == {"status": 201}


async def test_the_client_sends_conditions(live: Any, make_spec: Any) -> None:
    spec = make_spec()

    def use(client: Client) -> None:
        trial = client.under(dry_run=True)
        assert trial.set_project("vision", {"limit": 8}).limit == 8
        assert client.project("vision").limit is None
        seen = client.set_project("vision", {"limit": 8})
        client.set_project("vision", {"limit": 9})
        with pytest.raises(ApiError, match="has changed since you read it"):
            client.under(if_match=seen.etag).set_project("vision", {"limit": 10})
        assert client.project("vision").limit == 9
        assert trial.validate(spec).spec.name == "gpt", "requests without changes have no conditions"

    await live.client(use)


def test_no_dependency_and_no_operation_runs_in_a_thread(live) -> None:
    def calls(dependant: Dependant) -> Iterator[Any]:
        for each in dependant.dependencies:
            yield each.call
            yield from calls(each)

    for route in all_routes(live.app.routes):
        for call in (route.endpoint, *calls(route.dependant)):
            function = call if inspect.isfunction(call) else type(call).__call__
            is_asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
            assert is_asynchronous or call is reference.asset, (route.path, call)  # that one reads a file
