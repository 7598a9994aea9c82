"""Projects with the API: quotas, limits on specs, and jobs that depend on others."""

from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from regroup.api.schemas.projects import ProjectSettings
from regroup.service.domain.states import JobState, Reason, check_transition


async def test_a_project_is_created_shown_changed_and_deleted(live: Any) -> None:
    made = await live.client(lambda client: client.set_project("vision", ProjectSettings(guaranteed=8, limit=16)))
    assert (made.name, made.guaranteed, made.borrowable, made.limit, made.allocated) == ("vision", 8, None, 16, 0)
    job = await live.submit(project="vision")
    (shown,) = await live.client(lambda client: client.projects())
    assert (shown.name, shown.queued, shown.running) == ("vision", 1, 0)
    with pytest.raises(ApiError, match="project 'vision' has 1 job that has not ended") as refused:
        await live.client(lambda client: client.delete_project("vision"))
    assert refused.value.problem.status == 409
    await live.client(lambda client: client.cancel(job["id"]))
    await live.client(lambda client: client.delete_project("vision"))
    assert await live.client(lambda client: client.projects()) == []
    assert (await live.client(lambda client: client.project("vision"))).limit is None
    assert (await live.http.delete("/v1/projects/vision")).status_code == 404


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"guaranteed": 8, "limit": 4}, "/limit"),
        ({"guaranteed": 8, "borrowable": 9}, "/borrowable"),
        ({"guaranteed": -1}, "/guaranteed"),
        ({"weight": 0}, "/weight"),
        ({"defaults": {"prioritty": "low"}}, "/defaults/prioritty"),
        ({"defaults": {"priority": "lowest"}}, "/defaults/priority"),
        ({"defaults": {"name": "x"}}, "/defaults/name"),
    ],
)
async def test_contradictory_numbers_are_rejected(live: Any, settings: Any, pointer: str) -> None:
    answer = await live.http.put("/v1/projects/vision", json=settings)
    assert answer.status_code == 422, answer.text
    assert [wrong["pointer"] for wrong in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("admits", "fields", "status", "text"),
    [
        ({"devices": ["cuda"]}, {}, 403, "device cpu is not allowed in project 'small'; allowed devices: cuda"),
        ({"max_priority": "normal"}, {"priority": "high"}, 403, "the highest allowed priority is normal"),
        ({"max_ranks": 2}, {"layout": {"dp": {"min": 1, "target": 1, "max": 4}}}, 422, "this job can grow to 4"),
        ({"interpreters": []}, {"environment": {"interpreter": "/opt/py"}}, 403, "interpreter /opt/py"),
        ({"images": ["cu128"]}, {"environment": {"image": "cu130"}}, 403, "environment.image: cu130 is not allowed"),
        ({"images": ["cu128"]}, {}, 403, "environment.image: any is not allowed"),
        (
            {"accelerators": ["L40S"]},
            {"resources": {"device": "cuda", "accelerator": "H100"}},
            403,
            "resources.accelerator: H100 is not allowed",
        ),
    ],
)
async def test_a_job_outside_its_projects_limits_is_rejected_with_numbers(
    live: Any, make_spec: Any, admits: Any, fields: Any, status: int, text: str
) -> None:
    assert (await live.http.put("/v1/projects/small", json={"admits": admits})).status_code == 200
    answer = await live.http.post("/v1/jobs", json=make_spec(project="small", **fields))
    assert answer.status_code == status and text in answer.text


async def test_a_job_larger_than_its_projects_limit_is_rejected(live: Any, make_spec: Any) -> None:
    await live.http.put("/v1/projects/small", json={"limit": 3})
    answer = await live.http.post("/v1/jobs", json=make_spec(project="small", layout={"dp": 4}))
    assert answer.status_code == 422 and "is 3, this job needs at least 4" in answer.text


async def test_defaults_apply_if_the_spec_does_not_set_the_field(live: Any) -> None:
    defaults = {"priority": "low", "checkpoint": {"every_steps": 50}, "resources": {"cpus": 2}}
    await live.http.put("/v1/projects/small", json={"defaults": defaults})
    job = await live.submit(project="small", checkpoint={"keep_last": 1}, priority="high")
    spec = (await live.store.job(job["id"])).parsed_spec()
    assert (spec.priority, spec.resources.cpus) == ("high", 2)
    assert (spec.checkpoint.every_steps, spec.checkpoint.keep_last) == (50, 1)


async def test_a_job_depends_on_others_by_id(live: Any, make_spec: Any) -> None:
    first = await live.submit(name="first")
    then = await live.submit(name="then", depends_on=["first"])
    assert (await live.store.job(then["id"])).spec["depends_on"] == [first["id"]]
    for after, text in (("itself", "a job cannot depend on itself"), ("absent", "no job with id")):
        answer = await live.http.post("/v1/jobs", json=make_spec("itself", depends_on=[after]))
        assert answer.status_code == 422 and text in answer.text
    await live.store.apply(
        live.lease, check_transition(first["id"], JobState.QUEUED, JobState.FAILED, Reason.MAX_QUEUE_TIME), now=1.0
    )
    answer = await live.http.post("/v1/jobs", json=make_spec("late", depends_on=["first"]))
    assert answer.status_code == 422
    assert "ended FAILED (max_queue_time): this dependency can never succeed" in answer.text
