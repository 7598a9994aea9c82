"""/v1/jobs/{job}/incidents/{number}/evidence over HTTP, with evidence that agents stored."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SEEN = {
    "node": "a", "node_id": "n0", "generation": 1, "captured_s": 1.0, "gpus": [],
    "host": {"load": [0.1, 0.1, 0.1], "cpus": 2},
    "ranks": {"0": {
        "step": 3, "phase": "forward", "stalled_s": 9.0, "exit_code": None, "error": None, "uses": {},
        "was_inspected": True, "stacks": "Thread 0x1\n  File train.py", "collectives": [],
        "stdout": "epoch 1", "stderr": "",
    }},
}  # fmt: skip


def incident(**fields: Any) -> tuple[str, int, dict[str, Any]]:
    reported = {
        "id": "i1",
        "cause": "no rank moved on",
        "reason": "hang",
        "generation": 1,
        "next_generation": 2,
        "at_step": 2,
    }
    return "incident", 1, {**reported, "times": {}, "durations": {}, **fields}


def zipped(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


async def test_a_bundle_contains_evidence_of_nodes_and_the_database(live, job_events):
    job = await live.submit()
    await live.run(job["id"])
    await live.report(job["id"], incident(), job_events.formed(2, 2))
    await live.report(job["id"], incident(id="i2", generation=2, next_generation=None))
    await live.report(job["id"], incident(evidence_bytes=500))
    folder = Path(urlsplit(job["storage_uri"]).path) / "evidence" / "i1"
    folder.mkdir(parents=True)
    (folder / "n0.json").write_text(json.dumps(SEEN))

    path = f"/v1/jobs/{job['id']}/incidents"
    listed = (await live.http.get(path)).json()["incidents"]
    assert [(each["number"], each["id"], each["evidence_bytes"]) for each in listed] == [
        (1, "i1", 500),
        (2, "i2", None),
    ]
    answer = await live.http.get(f"{path}/1/evidence")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="gpt-incident-1.zip"'
    files = zipped(answer.content)
    assert sorted(files) == [
        "events.jsonl", "generation-1.json", "generation-2.json", "incident.json", "nodes/a.json", "ranks/0/stacks.txt",
        "ranks/0/stdout.txt", "spec.json", "summary.txt",
    ]  # fmt: skip
    assert files["ranks/0/stacks.txt"] == SEEN["ranks"]["0"]["stacks"] and files["ranks/0/stdout.txt"] == "epoch 1"
    assert json.loads(files["incident.json"])["number"] == 1 and json.loads(files["spec.json"])["name"] == "gpt"
    assert "stacks" not in json.loads(files["nodes/a.json"])["ranks"]["0"]
    assert {json.loads(line)["type"] for line in files["events.jsonl"].splitlines()} >= {"generation", "incident"}
    assert "rank 0 on a: forward of step 3 for 9.0 s" in files["summary.txt"] and "missing" not in files["summary.txt"]
    assert await live.client(lambda client: zipped(client.evidence("gpt", 1))) == files


async def test_the_bundle_lists_missing_evidence(live):
    job = await live.submit()
    await live.run(job["id"])
    path = f"/v1/jobs/{job['id']}/incidents/1/evidence"
    for reported, missing in (
        ({}, "missing: node a: not written yet"),
        ({"evidence_bytes": 0, "evidence_missing": {"a": "its agent died"}}, "missing: node a: its agent died"),
        ({"evidence_bytes": 9}, "n0.json does not exist"),
    ):
        await live.report(job["id"], incident(**reported))
        assert missing in zipped((await live.http.get(path)).content)["summary.txt"]
    folder = Path(urlsplit(job["storage_uri"]).path) / "evidence" / "i1"
    folder.mkdir(parents=True)
    (folder / "n0.json").write_text("{ torn")
    assert "the server cannot read " in zipped((await live.http.get(path)).content)["summary.txt"]


async def test_an_unknown_incident_is_404(live):
    job_id = (await live.submit())["id"]
    answer = await live.http.get(f"/v1/jobs/{job_id}/incidents/1/evidence")
    assert answer.status_code == 404 and answer.json()["detail"].endswith("has no incident 1: it has had no incidents")
    assert (await live.http.get("/v1/jobs/none/incidents/1/evidence")).status_code == 404
    assert (await live.http.get(f"/v1/jobs/{job_id}/incidents/0/evidence")).status_code == 422
