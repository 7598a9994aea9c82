"""Curves of one job, and of many."""

from typing import Any

import httpx2

from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow


async def test_curves_have_committed_and_repeated_steps_and_predictions(live, job_events):
    formed, step = job_events.formed, job_events.step
    job = await live.submit()
    await live.run(job["id"])
    await live.report(job["id"], *(step(1, number, loss=float(number)) for number in (2, 3, 4)))
    await live.report(job["id"], formed(2, 2), step(2, 3, loss=30.0))
    await live.store.predictions.put(live.lease, job["id"], 1, {"step_s": 0.25})
    found = await live.client(lambda client: client.curves(job["id"], metrics=["loss", "step_s"]))
    loss, step_s = found.curves
    assert (found.steps_per_point, loss.metric, step_s.metric) == (1, "loss", "step_s")
    assert loss.committed.steps == [1, 2, 3] and loss.committed.mean[1:] == [2.0, 30.0]
    assert [(each.generation, each.points.steps, each.points.mean) for each in loss.repeated] == [
        (1, [3, 4], [3.0, 4.0])
    ]
    assert [(each.generation, each.start_step, each.value) for each in step_s.predicted] == [(1, 0, 0.25)]
    usual = (await live.http.get(f"/v1/jobs/{job['id']}/curves?points=2")).json()
    assert usual["steps_per_point"] == 2 and len(usual["curves"]) == 7
    for query in ("points=1", "points=2001", "metric=", "metric=a%22b", "from_step=0", "&".join(["metric=a"] * 13)):
        assert (await live.http.get(f"/v1/jobs/{job['id']}/curves?{query}")).status_code == 422, query


async def test_curves_of_many_jobs_have_single_committed_steps(live: Any, job_events: Any) -> None:
    formed, step = job_events.formed, job_events.step
    first, second, third = [await live.submit(name=name) for name in ("one", "two", "three")]
    for job in (first, second):
        await live.run(job["id"])
    await live.report(first["id"], *(step(1, number, loss=float(number)) for number in range(2, 12)))
    await live.report(first["id"], formed(2, 6), *(step(2, number, loss=100.0 + number) for number in (7, 8, 9)))
    names = [first["id"], "two", third["id"]]
    found = await live.client(lambda client: client.curves_of_jobs(names, points=3))
    assert [(each.job, each.name) for each in found.jobs] == [
        (first["id"], "one"), (second["id"], "two"), (third["id"], "three"),
    ]  # fmt: skip
    one, two, three = found.jobs
    assert (one.steps, one.values["loss"], one.values["step_s"]) == ([1, 5, 9], [2.0, 5.0, 109.0], [0.5, 0.5, 0.5])
    assert len(one.times_s) == 3 and two.steps == [1]
    assert (three.steps, three.values) == ([], {"loss": [], "step_s": []})
    every = await live.client(lambda client: client.curves_of_jobs(["one"], metrics=["loss", "none"], points=100))
    assert every.jobs[0].steps == list(range(1, 10)) and every.jobs[0].values["none"] == [None] * 9
    assert every.jobs[0].values["loss"][6:] == [107.0, 108.0, 109.0]


async def test_requests_for_curves_of_many_jobs_are_bounded(live: Any) -> None:
    job = await live.submit(name="one")
    for query in ("", "job=", "job=one&points=1", "job=one&points=101", "job=one&" + "&".join(["metric=a"] * 9),
                  "&".join(["job=one"] * 101), "job=one&metric=a%22b"):  # fmt: skip
        assert (await live.http.get(f"/v1/curves?{query}")).status_code == 422, query
    repeated = (await live.http.get(f"/v1/curves?job={job['id']}&job={job['id']}")).json()
    assert len(repeated["jobs"]) == 1


async def test_a_job_that_the_sender_does_not_see_is_refused_as_unknown(live: Any) -> None:
    mine, hidden = await live.submit(name="mine", project="own"), await live.submit(name="hidden", project="other")
    token, row = generate_token(), IdentityRow("eve", IdentityKind.USER, None, False, 1.0, "test")
    await live.store.identities.create_identity(row)
    await live.store.identities.put_member(MemberRow("own", "eve", Membership(Role.VIEWER), 1.0, "test"))
    await live.store.identities.create_token(TokenRow(token.id, "eve", "", token.digest, None, None, 1.0, "test"))
    headers = {"Authorization": f"Bearer {token.value}"}
    async with httpx2.AsyncClient(base_url=live.url, trust_env=False, headers=headers) as http:
        seen = await http.get("/v1/curves", params={"job": mine["id"]})
        both = await http.get("/v1/curves", params={"job": [mine["id"], hidden["id"]]})
        named = await http.get("/v1/curves", params={"job": "hidden", "project": "other"})
        compared = await http.get(f"/v1/jobs/{mine['id']}/diff", params={"with": hidden["id"]})
    assert seen.status_code == 200 and seen.json()["jobs"][0]["name"] == "mine"
    assert {(each.status_code, each.json()["code"]) for each in (both, named, compared)} == {(404, "not_found")}
    assert hidden["id"] in both.json()["detail"]
