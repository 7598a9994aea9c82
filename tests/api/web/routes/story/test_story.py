"""/v1/jobs/{job}/story and one incident over HTTP, for a job with a hang, a resize and a killed rank."""

from typing import Any

import pytest

from tests.support.inputs.eventful_job import HANG, KILL, LAST_STEP, NODES, OUTLIER_RANK, run_eventful_job


async def get(live: Any, path: str, status: int = 200) -> Any:
    answer = await live.http.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_the_story_has_the_whole_course_of_a_job(live: Any) -> None:
    job = await run_eventful_job(live)
    story = await get(live, f"/v1/jobs/{job.id}/story")
    states = [each["state"] for each in story["states"]]
    assert states == [
        "QUEUED", "PLACING", "STARTING", "RUNNING", "RECOVERING", "RUNNING", "RESIZING", "RUNNING", "RECOVERING",
        "RUNNING", "SUCCEEDED",
    ]  # fmt: skip
    ends = [each["until_s"] for each in story["states"]]
    assert ends[:-1] == [each["from_s"] for each in story["states"][1:]] and story["is_over"]
    assert story["until_s"] - story["from_s"] == pytest.approx(31.5)
    shown = ("number", "world_size", "start_step", "last_step", "kept_until_step", "repeated", "restored_from", "cause")
    assert [tuple(each[name] for name in shown) for each in story["generations"]] == [
        (1, 4, 0, 20, 18, 2, "nothing", "start"),
        (2, 4, 18, 40, None, 0, "mirror", "hang"),
        (3, 8, 40, 60, 50, 10, "memory", "resized"),
        (4, 8, 50, LAST_STEP, None, 0, "disk", "rank_exit"),
    ]
    spans = [(each["from_s"] - job.start_s, each["until_s"] - job.start_s) for each in story["generations"]]
    assert spans == [pytest.approx(span) for span in ((3.0, 9.2), (13.2, 20.0), (20.0, 25.1), (25.9, 31.5))]
    places = {node["name"]: [tuple(each.values()) for each in node["places"]] for node in story["nodes"]}
    assert places == {
        name: [(3 if index > 1 else 1, 4, [[2 * index, 2 * index + 1]])] for index, name in enumerate(NODES)
    }
    assert [(each["step"], each["generation"]) for each in story["checkpoints"]] == [(10, 1), (50, 3)]
    mirrors = [(each["time_s"] - job.start_s, each["generation"], each["step"]) for each in story["mirrors"]]
    assert mirrors == [(pytest.approx(5.2), 1, 4), (pytest.approx(8.8), 1, 18)]
    assert [each["text"] for each in story["marks"] if each["kind"] == "request"] == [
        "resize requested to dp_shard=8: more nodes arrived"
    ]
    assert len(story["progress"]) == 20 + 22 + 20 + 20 and story["progress"][-1]["step"] == LAST_STEP
    assert story["counts"] == {"generations": 4, "incidents": 2, "checkpoints": 2}


async def test_an_incident_has_its_cost_and_what_memory_saved(live: Any) -> None:
    job = await run_eventful_job(live)
    hang, kill = (await get(live, f"/v1/jobs/{job.id}/story"))["incidents"]
    assert hang["number"] == HANG and hang["node"] == "b" and hang["restored_from"] == "mirror"
    assert hang["cost"]["device_s"] == pytest.approx(4 * (4.8 + 2 * 0.25))
    assert hang["cost"]["basis"] == "4 devices for 4.8 s, and 2 steps of 250 ms again"
    saved = hang["without_memory"]
    assert (saved["restored_step"], saved["more_steps"]) == (10, 8) and saved["more_s"] == pytest.approx(2.0)
    assert "the checkpoint of step 10" in saved["basis"]
    assert "Generation 2 with 4 ranks continued at step 18, from mirrors" in hang["summary"]
    assert kill["number"] == KILL and kill["without_memory"] is None and kill["restored_from"] == "disk"
    assert kill["cost"]["device_s"] == pytest.approx(8 * (1.9 + 10 * 0.2)) and kill["steps_lost"] == 10
    assert "memory" in kill["remedy"] and hang["remedy"].startswith("Compare the stacks")


async def test_the_evidence_of_an_incident_names_the_outlier(live: Any) -> None:
    job = await run_eventful_job(live)
    found = (await get(live, f"/v1/jobs/{job.id}/incidents/{HANG}"))["findings"]
    outlier, rest = found["stacks"]
    assert outlier["ranks"] == [OUTLIER_RANK] and outlier["is_outlier"]
    assert outlier["place"] == "read_batch (data.py:31)"
    assert (rest["ranks"], rest["is_outlier"]) == ([0, 1, 2], False), "addresses do not make stacks different"
    assert found["verdict"].startswith("Rank 3 did not enter all_reduce of 1024 float32, collective 41 of group data.")
    assert found["verdict"].endswith("ranks 0-2 are in all_reduce (distributed_c10d.py:2806).")
    assert [(each["rank"], each["node"], each["is_outlier"]) for each in found["ranks"]] == [
        (0, "a", False), (1, "a", False), (2, "b", False), (3, "b", True),
    ]  # fmt: skip
    assert {"summary.txt", "ranks/3/stacks.txt", "nodes/a.json", "incident.json"} <= found["files"].keys()
    path = f"/v1/jobs/{job.id}/incidents/{HANG}/file"
    part = await get(live, f"{path}?name=ranks/3/stdout.txt&offset=6&limit=4")
    assert (part["text"], part["next_offset"], part["size_bytes"]) == ("from", 10, 13)
    assert found["files"]["ranks/3/stdout.txt"] == 13
    detail = (await get(live, f"{path}?name=../../secrets", 404))["detail"]
    assert "the evidence has no file '../../secrets'" in detail and "summary.txt" in detail


async def test_an_incident_without_evidence_has_the_reason(live: Any) -> None:
    job = await run_eventful_job(live)
    found = await get(live, f"/v1/jobs/{job.id}/incidents/{KILL}")
    assert found["findings"]["stacks"] == [] and set(found["findings"]["missing"]) == set(NODES)
    assert found["account"]["cause"] == "rank 1 was killed by signal 9"
    await get(live, f"/v1/jobs/{job.id}/incidents/3", 404)


async def test_a_job_that_waits_has_a_story(live: Any) -> None:
    job = (await live.submit())["id"]
    story = await get(live, f"/v1/jobs/{job}/story")
    assert [each["state"] for each in story["states"]] == ["QUEUED"] and not story["is_over"]
    assert story["states"][0]["until_s"] is None and story["until_s"] >= story["from_s"]
    assert story["generations"] == story["nodes"] == story["incidents"] == story["progress"] == []


async def test_the_clients_read_the_same(live: Any) -> None:
    job = await run_eventful_job(live)
    story = await live.client(lambda client: client.story(job.id, points=10))
    assert len(story.progress) <= 10 and story.generations[1].restored_from == "mirror"
    detail = await live.client(lambda client: client.incident(job.id, HANG))
    assert detail.findings.stacks[0].ranks == [OUTLIER_RANK]
    part = await live.client(lambda client: client.evidence_file(job.id, HANG, "summary.txt", limit=10))
    assert part.text == "incident 1" and part.next_offset == 10
