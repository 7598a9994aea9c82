"""/v1/jobs over HTTP."""

import asyncio
import json
import time
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import NewJob, ProjectRow


async def test_submit_and_get(live, make_spec):
    spec = make_spec(labels={"team": "a"}, secrets={"TOKEN": {"from_env": "MY_TOKEN"}}, owner="someone")
    answer = await live.http.post("/v1/jobs", json=spec)
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["reason"], job["step"], job["steps"], job["version"]) == ("QUEUED", "submitted", 0, 10, 1)
    assert (job["labels"], job["owner"], job["project"]) == ({"team": "a"}, "someone", "default")
    assert job["digest"] == {"parameters": None, "samples": None}
    assert job["storage_uri"].endswith(f"/storage/jobs/{job['id']}")
    for reference in (job["id"], "gpt"):
        got = await live.http.get(f"/v1/jobs/{reference}")
        assert got.json() == job
    assert (await live.http.get("/v1/jobs/gpt?project=other")).status_code == 404


async def test_a_job_links_to_its_runs_in_trackers(live, make_spec):
    env = {"WANDB_ENTITY": "team", "WANDB_PROJECT": "gpt"}
    made = (await live.http.post("/v1/jobs", json=make_spec(env=env))).json()
    run = made["id"].replace("_", "-")
    assert made["links"] == [{"name": "Weights & Biases", "url": f"https://wandb.ai/team/gpt/runs/{run}"}]
    assert (await live.http.get(f"/v1/jobs/{made['id']}")).json()["links"] == made["links"]


async def test_a_running_job_shows_its_metrics(live, job_events):
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    times = {"fault_s": 1.0, "seen_s": 1.1}
    incident = {"id": "i1", "cause": "rank_exit", "rank": 2, "at_step": 3, "steps_lost": 0, "times": times}
    await live.report(
        job_id, job_events.step(1, 2, loss=1.5, validation_loss=1.75), ("incident", 1, incident),
        status={"goodput": 0.5, "ranks": {"0": [2, "forward"]}},
    )  # fmt: skip
    job = (await live.http.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["step"], job["loss"], job["validation_loss"]) == ("RUNNING", 2, 1.5, 1.75)
    assert (job["tokens_per_s"], job["eta_s"], job["goodput"]) == (128.0, 4.0, 0.5)
    assert (job["generation"], job["layout"]["dp_shard"], job["placement"][0]["node_name"]) == (1, 1, "a")
    assert (job["incidents"][0]["rank"], job["incidents"][0]["times"]) == (2, times)
    assert job["rank_phases"] == {"0": [2, "forward"]}
    await live.report(
        job_id, ("result", 1, {"parameters": "aa", "samples": "bb", "parameter_count": 7, "step": 10}),
        job_events.state("SUCCEEDED", "completed"),
    )  # fmt: skip
    job = (await live.http.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["digest"], job["parameter_count"]) == (
        "SUCCEEDED",
        {"parameters": "aa", "samples": "bb"},
        7,
    )
    assert (job["eta_s"], job["rank_phases"]) == (None, {})


async def test_one_key_one_job(live, make_spec):
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(live.http.post("/v1/jobs", json=make_spec(), headers=headers) for _ in range(6)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted("Idempotency-Replayed" in answer.headers for answer in answers) == [False] + [True] * 5
    other = await live.http.post("/v1/jobs", json=make_spec("other"), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    taken = await live.http.post("/v1/jobs", json=make_spec(), headers={"Idempotency-Key": "k2"})
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("fields", "pointer", "value"),
    [
        ({"colour": "red"}, "/colour", "red"),
        ({"training": {"global_batch": 4, "micro_batch": 3, "sequence": 1, "steps": 1}}, "/training", None),
        ({"resources": {"cpus": 0}}, "/resources/cpus", 0),
        ({"storage_uri": "here/and/there"}, "/storage_uri", "here/and/there"),
        ({"storage_uri": "http://h/x"}, "/storage_uri", "http://h/x"),
        ({"resume_from": "nobody@latest"}, "/resume_from", "nobody@latest"),
        ({"secrets": {"TOKEN": "s3cr3t"}}, "/secrets/TOKEN", None),
        ({"args": {"rate": "\x00"}}, "/args/rate", None),
        ({"workload": {"kind": "script", "entrypoint": "/x.py", "cwd": "here"}}, "/workload/cwd", "here"),
    ],
)
async def test_an_invalid_field_is_named_with_its_value(live, make_spec, fields, pointer, value):
    answer = await live.http.post("/v1/jobs", json=make_spec(**fields))
    problem = answer.json()
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert problem["code"] == "invalid_spec"
    assert pointer in [wrong["pointer"] for wrong in problem["errors"]]
    assert value in [wrong["value"] for wrong in problem["errors"] if wrong["pointer"] == pointer]
    assert "s3cr3t" not in answer.text


async def test_numbers_that_json_cannot_represent_are_rejected(live, make_spec):
    body = json.dumps(make_spec()).replace('"steps": 10', '"steps": 10, "optimizer": {"lr": Infinity}')
    answer = await live.http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")


@pytest.mark.parametrize("part", [{"faults": [{"at": {"rank": 0, "step": 1}}]}, {"disable_detectors": ["hang"]}])
async def test_faults_need_a_server_that_allows_them(live, make_spec, part):
    answer = await live.http.post("/v1/jobs", json=make_spec(**part))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert all(word in answer.json()["detail"] for word in ("--allow-faults", f"`{next(iter(part))}`"))


async def test_listing(live):
    ids = [(await live.submit(name=f"job-{number}", labels={"n": str(number)}))["id"] for number in range(5)]
    first = (await live.http.get("/v1/jobs?page_size=2")).json()
    assert [job["id"] for job in first["jobs"]] == ids[:2:-1]
    token = first["next_page_token"]
    second = (await live.http.get("/v1/jobs", params={"page_size": 2, "page_token": token})).json()
    assert [job["id"] for job in second["jobs"]] == ids[2:0:-1]
    token = second["next_page_token"]
    last = (await live.http.get("/v1/jobs", params={"page_size": 2, "page_token": token})).json()
    assert ([job["id"] for job in last["jobs"]], last["next_page_token"]) == ([ids[0]], "")
    for params in ({"page_token": token, "name": "job-1"}, {"page_token": token[:-3] + "AAA"}, {"page_token": "é"}):
        answer = await live.http.get("/v1/jobs", params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    labelled = (await live.http.get("/v1/jobs?label=n=3")).json()
    assert [job["id"] for job in labelled["jobs"]] == [ids[3]]
    assert (await live.http.get("/v1/jobs?state=RUNNING&state=FAILED")).json()["jobs"] == []
    assert (await live.http.get("/v1/jobs?state=SLEEPING")).json()["errors"][0]["pointer"] == "state"


async def test_jobs_are_listed_by_their_ids(live):
    ids = [(await live.submit(name=f"job-{number}", labels={"n": str(number % 2)}))["id"] for number in range(4)]
    await live.http.post(f"/v1/jobs/{ids[0]}/cancel")

    async def listed(**params):
        answer = await live.http.get("/v1/jobs", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert [job["id"] for job in (await listed(id=[ids[0], ids[2], "no-such-job"]))["jobs"]] == [ids[2], ids[0]]
    assert [job["id"] for job in (await listed(id=ids, state="QUEUED", label="n=0"))["jobs"]] == [ids[2]]
    page = await listed(id=ids, page_size=3)
    assert [job["id"] for job in page["jobs"]] == ids[:0:-1]
    rest = await listed(id=ids, page_size=3, page_token=page["next_page_token"])
    assert ([job["id"] for job in rest["jobs"]], rest["next_page_token"]) == ([ids[0]], "")
    other = await live.http.get("/v1/jobs", params={"id": ids[:2], "page_token": page["next_page_token"]})
    assert (other.status_code, other.json()["code"]) == (400, "bad_request")
    many = await live.http.get("/v1/jobs", params={"id": ["j"] * 101})
    assert (many.status_code, many.json()["errors"][0]["pointer"]) == (422, "id")
    assert await live.client(lambda client: [job.id for job in client.jobs(ids=ids[:1])]) == ids[:1]


async def test_a_job_shows_its_author_and_lists_can_be_limited_to_one(live, make_spec):
    owner = (await live.http.get("/v1/me")).json()["subject"]
    mine = await live.submit(name="mine", owner="the team")
    assert (mine["author"], mine["owner"]) == (owner, "the team")
    author = Author("ana", address="test")
    other = NewJob("job_other", parse_spec(make_spec(name="other")), "file:///s/other")
    await live.store.submissions.submit(other, now=1.0, author=author)
    for author, names in (("me", ["mine"]), (owner, ["mine"]), ("ana", ["other"]), ("eve", [])):
        listed = (await live.http.get("/v1/jobs", params={"author": author})).json()["jobs"]
        assert [job["name"] for job in listed] == names
    second = await live.submit(name="second")
    page = (await live.http.get("/v1/jobs", params={"author": "me", "page_size": 1})).json()
    assert [job["id"] for job in page["jobs"]] == [second["id"]]
    token = page["next_page_token"]
    rest = (await live.http.get("/v1/jobs", params={"author": "me", "page_token": token})).json()
    assert [job["id"] for job in rest["jobs"]] == [mine["id"]]
    wrong = await live.http.get("/v1/jobs", params={"author": "ana", "page_token": token})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")
    assert (await live.client(lambda client: [job.name for job in client.jobs(author="ana")])) == ["other"]


async def test_cancel_with_a_version(live, job_events):
    waiting = (await live.submit(name="waiting"))["id"]
    answer = await live.http.post(f"/v1/jobs/{waiting}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "CANCELLED")
    running = (await live.submit(name="running"))["id"]
    old = (await live.http.get(f"/v1/jobs/{running}")).headers["ETag"]
    await live.run(running)
    stale = await live.http.post(f"/v1/jobs/{running}/cancel", headers={"If-Match": old})
    assert (stale.status_code, stale.json()["code"]) == (412, "precondition_failed")
    now = (await live.http.get(f"/v1/jobs/{running}")).headers["ETag"]
    assert (await live.http.get(f"/v1/jobs/{running}", headers={"If-None-Match": now})).status_code == 304
    await live.report(running, job_events.step(1, 2))  # training progress changes the ETag, but is not a conflict
    assert (await live.http.get(f"/v1/jobs/{running}", headers={"If-None-Match": now})).status_code == 200
    answer = await live.http.post(f"/v1/jobs/{running}/cancel", headers={"If-Match": now})
    assert (answer.status_code, answer.json()["state"], answer.json()["intents"]) == (
        202,
        "RUNNING",
        {"cancel": True},
    )
    await live.report(running, job_events.state("FAILED", "user_error"))
    late = await live.http.post(f"/v1/jobs/{running}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "conflict")


async def test_history(live, job_events):
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    saved = {"step": 3, "generation": 1, "uri": "file:///c", "size_bytes": 5, "files": 2}
    await live.report(
        job_id,
        *(job_events.step(1, number) for number in (2, 3, 4)),
        ("checkpoint", 1, saved),
        job_events.formed(2, 3),
        job_events.step(2, 4),
    )
    path = f"/v1/jobs/{job_id}"
    events = (await live.http.get(f"{path}/events?after=2&limit=2")).json()["events"]
    assert [event["number"] for event in events] == [3, 4]
    steps = (await live.http.get(f"{path}/steps?after=2")).json()["steps"]
    assert [(row["generation"], row["step"]) for row in steps] == [(1, 3), (2, 4)]
    assert steps[0]["samples_hash"] == f"{2**64 - 3:016x}"
    formed = (await live.http.get(f"{path}/generations")).json()["generations"]
    assert [(item["number"], item["start_step"]) for item in formed] == [(1, 0), (2, 3)]
    ledger = (await live.http.get(f"{path}/ledger")).json()
    assert (ledger["exact"], ledger["steps"], ledger["superseded"]) == (True, 4, 1)
    assert (await live.http.put(f"{path}/checkpoints/3/pin")).json()["pinned"]
    assert (await live.http.get(f"{path}/checkpoints")).json()["checkpoints"][0]["pinned"]
    assert not (await live.http.delete(f"{path}/checkpoints/3/pin")).json()["pinned"]
    assert (await live.http.put(f"{path}/checkpoints/4/pin")).status_code == 404


async def test_resume_from_another_jobs_checkpoint(live, job_events, make_spec):
    source = (await live.submit(name="source"))["id"]
    await live.run(source)
    saved = [("checkpoint", 1, {"step": n, "generation": 1, "uri": f"file:///c/{n}"}) for n in (2, 6)]
    # Generation 2 started at step 3, so the checkpoint of generation 1 at step 6 is not part of the job's history.
    await live.report(source, *saved, job_events.formed(2, 3))
    for expected in ("source@latest", f"{source}@2"):
        job = await live.submit(name=f"from-{expected[-1]}", resume_from=expected)
        assert job["resume_uri"] == "file:///c/2"
    answer = await live.http.post("/v1/jobs", json=make_spec(resume_from="source@6"))
    assert "steps in storage: 2" in answer.json()["errors"][0]["detail"]


async def test_why(live, job_events):
    job_id = (job := await live.submit())["id"]
    waiting = (await live.http.get(f"/v1/jobs/{job_id}/why")).json()
    assert (waiting["state"], waiting["queue_position"]) == ("QUEUED", 0)
    await live.run(job_id)
    running = (await live.http.get(f"/v1/jobs/{job_id}/why")).json()
    assert running["goodput"] is None, "the job has just started"
    assert sum(running["seconds"].values()) == pytest.approx(time.time() - job["created_at"], abs=5.0)
    error = {"kind": "ValueError", "message": "boom", "traceback": "…", "rank": 1, "step": 2, "phase": "forward"}
    await live.report(job_id, job_events.state("FAILED", "user_error", message="ValueError: boom", error=error))
    failed = (await live.http.get(f"/v1/jobs/{job_id}/why")).json()
    assert "boom" in failed["summary"] and failed["error"] == error
    assert failed["advice"] and "Fix the code" in failed["advice"][0]


async def test_a_held_job_has_a_condition_until_it_is_released(live, job_events):
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    refused = await live.http.post(f"/v1/jobs/{job_id}/release")
    assert refused.status_code == 409 and "RUNNING and not held" in refused.json()["detail"]
    error = {"kind": "ValueError", "message": "bad"}
    held = {"until_s": 1.8e9, "reason": "user_error", "message": "bad", "error": error, "stacks": {}}
    await live.report(job_id, ("held", 1, held), job_events.state("DRAINING", "user_error", message="bad; kept"))
    job = (await live.http.get(f"/v1/jobs/{job_id}")).json()
    (condition,) = job["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Held", True, "user_error")
    assert condition["message"] == "it failed; its nodes are kept until 2027-01-15 08:00:00 UTC"
    assert (job["state"], job["error"]) == ("DRAINING", error)
    why = (await live.http.get(f"/v1/jobs/{job_id}/why")).json()
    assert why["summary"] == "Failed at step 1 of 10 (user_error), nodes held: bad; kept"
    assert f"regroup release {job_id}" in why["advice"][1] and "traceback" in why["advice"][-1]
    assert why["seconds"]["held"] > 0
    for _ in range(2):
        assert (await live.http.post(f"/v1/jobs/{job_id}/release")).status_code == 202
    events = await live.store.events(job_id)
    assert [event.data for event in events if event.type == "intent"] == [{"release": True}]
    await live.report(job_id, job_events.state("FAILED", "user_error", message="bad", error=error))
    job = (await live.http.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["conditions"], job["message"]) == ("FAILED", [], "bad")
    assert (await live.http.post(f"/v1/jobs/{job_id}/release")).status_code == 409


async def test_the_answer_to_a_submission_is_the_job(live, make_spec):
    fields = {
        "labels": {"team": "vision"}, "max_duration": "2h", "layout": {"dp": {"min": 1, "target": 2, "max": 4}},
        "env": {"A": "1e3"}, "checkpoint": {"every": 5}, "seed": 3, "owner": "Zoë 🐟",
    }  # fmt: skip
    answer = await live.http.post("/v1/jobs", json=make_spec(**fields))
    assert answer.status_code == 201, answer.text
    stored = await live.http.get(answer.headers["Location"])
    assert answer.json() == stored.json()
    assert answer.headers["ETag"] == stored.headers["ETag"] == stored.json()["etag"]


async def test_a_submission_obeys_settings_that_another_server_changed(live, make_spec):
    async def put(**settings: Any) -> None:
        await live.store.queue.put_project(ProjectRow("default", **settings))

    assert (await live.submit(name="first"))["spec"]["priority"] == "normal"
    await put(defaults={"priority": "low"})
    assert (await live.submit(name="second"))["spec"]["priority"] == "low"
    await put(admits={"max_priority": "low"})
    answer = await live.http.post("/v1/jobs", json=make_spec("third", priority="high"))
    assert answer.status_code == 403 and "priority high is not allowed" in answer.text
    await put()
    answer = await live.http.post("/v1/jobs", json=make_spec("fourth", priority="high"))
    assert answer.status_code == 201, answer.text
