"""Budgets over HTTP: of a job and of a project, and the budgets that a server refuses."""

from typing import Any

import pytest

from tests.support.inputs.held_devices import allocate, reservation, submit

PRICES = "{currency: EUR, device_hour: {H100: 2.5}}"
GPU = {"device": "cuda", "accelerator": "H100"}


@pytest.fixture
def prices(live: Any) -> None:
    object.__setattr__(live.services.settings, "prices", PRICES)  # settings are frozen
    live.services.__dict__.pop("jobs", None)


async def test_the_budget_of_a_job_is_replaced(live: Any) -> None:
    job = await live.submit(budget={"device_hours": 5})
    assert job["spec"]["budget"] == {"device_hours": 5.0, "cost": None}
    changed = await live.http.put(f"/v1/jobs/{job['id']}/budget", json={"device_hours": 10})
    assert changed.status_code == 200 and changed.json()["intents"]["budget"] == {"device_hours": 10.0}
    by_name = await live.client(lambda client: client.set_budget("gpt", device_hours=20.0))
    assert by_name.intents["budget"] == {"device_hours": 20.0}
    await live.http.post(f"/v1/jobs/{job['id']}/cancel")
    ended = await live.http.put(f"/v1/jobs/{job['id']}/budget", json={"device_hours": 10})
    assert ended.status_code == 409 and "only a job that has not ended" in ended.text


async def test_a_budget_in_money_needs_prices(live: Any, make_spec: Any) -> None:
    for body in (make_spec(budget={"cost": 5}), make_spec(budget={"cost": 5}, resources=GPU)):
        refused = await live.http.post("/v1/jobs", json=body)
        assert refused.status_code == 422 and "this server has no price table" in refused.text
        assert refused.json()["errors"][0]["pointer"] == "/budget/cost"
    project = await live.http.put("/v1/projects/vision", json={"budget": {"cost": 5}})
    assert project.status_code == 422 and "this server has no price table" in project.text
    job = await live.submit()
    assert (await live.http.put(f"/v1/jobs/{job['id']}/budget", json={"cost": 5})).status_code == 422


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (GPU, None),
        ({"device": "cpu"}, "`cpu` has no price; accelerators with a price: H100"),
        ({"device": "cuda"}, "set resources.accelerator to one with a price: H100"),
        ({"device": "cuda", "accelerator": "A100"}, "accelerator A100 has no price"),
    ],
)
async def test_a_job_with_a_budget_in_money_must_use_priced_devices(
    live: Any, make_spec: Any, prices: None, resources: Any, text: str | None
) -> None:
    await live.http.put("/v1/projects/vision", json={"budget": {"cost": 100}})
    own = await live.http.post("/v1/jobs", json=make_spec(budget={"cost": 5}, resources=resources))
    shared = await live.http.post("/v1/jobs", json=make_spec(project="vision", resources=resources))
    if text is None:
        assert (own.status_code, shared.status_code) == (201, 201), (own.text, shared.text)
        return
    assert own.status_code == 422 and text in own.text
    assert shared.status_code == 422 and text in shared.text and "project 'vision' has a budget in money" in shared.text
    assert shared.json()["errors"][0]["pointer"] == "/resources"


async def test_a_project_shows_the_use_of_its_budget(live: Any) -> None:
    budget = {"device_hours": 100, "since": "1970-01-01T01:00Z"}
    made = await live.http.put("/v1/projects/vision", json={"budget": budget})
    assert made.status_code == 200, made.text
    assert made.json()["budget"] == {"device_hours": 100.0, "cost": None, "since": 3600.0}
    assert made.json()["budget_used"] == 0.0
    await submit(live.store, "j-one", project="vision")
    await allocate(live.store, live.lease, "j-one", reservation("j-one", "a", 2), now=live.services.clock() - 3600.0)
    shown = await live.client(lambda client: client.project("vision"))
    assert shown.budget_used == pytest.approx(2.0, abs=0.1)
    none = await live.http.put("/v1/projects/vision", json={})
    assert none.json()["budget"] is None and none.json()["budget_used"] is None


@pytest.mark.parametrize(
    ("budget", "pointer"),
    [
        ({}, "/budget"),
        ({"device_hours": -1}, "/budget/device_hours"),
        ({"device_hours": 1, "since": "x"}, "/budget/since"),
    ],
)
async def test_a_wrong_budget_of_a_project_is_refused(live: Any, budget: Any, pointer: str) -> None:
    answer = await live.http.put("/v1/projects/vision", json={"budget": budget})
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer, answer.text
