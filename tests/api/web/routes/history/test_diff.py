"""The differences between the specs of two jobs."""

from typing import Any

from regroup.service.store.schema.tables import jobs


async def test_the_fields_that_differ_have_both_values(live: Any) -> None:
    one = await live.submit(name="one", seed=1, labels={"team": "a"})
    await live.submit(name="two", seed=2)
    found = await live.client(lambda client: client.diff(one["id"], "two"))
    assert found.first == one["id"]
    assert [(each.path, each.first, each.second) for each in found.differences] == [
        ("labels.team", "a", None), ("name", "one", "two"), ("seed", 1, 2),
    ]  # fmt: skip
    same = await live.client(lambda client: client.diff("one", "one"))
    assert same.differences == []


async def test_a_stored_spec_that_is_not_valid_is_compared_as_it_is(live: Any) -> None:
    one, two = await live.submit(name="one"), await live.submit(name="two")
    async with live.store._database.write() as connection:
        changed = jobs.update().where(jobs.c.id == one["id"]).values(spec={"name": "one", "unknown": 1})
        await connection.execute(changed)
    found = await live.client(lambda client: client.diff(one["id"], two["id"]))
    assert ("unknown", 1, None) in [(each.path, each.first, each.second) for each in found.differences]


async def test_the_other_job_is_required_and_must_exist(live: Any) -> None:
    await live.submit(name="one")
    assert (await live.http.get("/v1/jobs/one/diff")).status_code == 422
    missing = await live.http.get("/v1/jobs/one/diff", params={"with": "none"})
    assert missing.status_code == 404 and "'none'" in missing.json()["detail"]
