"""The tasks of an operator, done over MCP alone by a scripted agent, with results checked through the API."""

import asyncio
import contextlib
import csv
import io
import json
import re
import zipfile
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp_types import BlobResourceContents

from regroup.api.client.async_client import AsyncClient
from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node
from regroup.service.local.secrets_key import KeySource
from regroup.service.operations.hooks.delivery import HookDelivery
from tests.support.inputs import held_devices
from tests.support.inputs.placed_jobs import place_job
from tests.support.servers.hook_receiver import running_receiver
from tests.support.servers.mcp_agents import Agent, agent_over_http, agent_over_stdio, mcp_over_http

Task = Callable[[Agent, Any, Any], Awaitable[None]]
TASKS: list[Task] = []


def task(function: Task) -> Task:
    TASKS.append(function)
    return function


async def get(live: Any, path: str) -> Any:
    answer = await live.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def split_waiting_time(summary: str) -> tuple[int, str]:
    """Return the seconds that a job has waited, and the sentence without them."""
    seconds = re.findall(r"Queued for (\d+) s", summary)
    assert len(seconds) == 1, summary
    return int(seconds[0]), summary.replace(f"{seconds[0]} s", "", 1)


def add_nodes(live: Any, rack: str, count: int) -> list[str]:
    names = [f"{rack}-{number}" for number in range(count)]
    for name in names:
        labels = {DEFAULT_LABELS[Level.RACK]: rack}
        live.cluster.add_node(Node(f"{name:0<40}", name, "10.0.0.1", labels=labels, cpus=4, free_cpus=4))
    return names


@task
async def find_why_a_job_waits(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="waits"))["id"]
    before = await get(live, f"/v1/jobs/{job}/why")
    found = await agent.read("explain_job", job=job)
    after = await get(live, f"/v1/jobs/{job}/why")
    first, waited, last = (split_waiting_time(each["summary"]) for each in (before, found, after))
    assert first[0] <= waited[0] <= last[0] and waited[1] == last[1]
    assert found["advice"] == after["advice"] and found["state"] == "QUEUED"


@task
async def rescue_a_failed_job(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="fails"))["id"]
    await live.run(job)
    error = {"kind": "ValueError", "message": "bad batch", "traceback": "Traceback\n  File train.py"}
    await live.report(job, ("state", 1, {"state": "FAILED", "reason": "user_error", "message": "bad", "error": error}))
    live.cluster.logs[job, 1, 0, "stderr"] = "x" * 5000 + "\nValueError: bad batch\n"
    why = await agent.read("explain_job", job=job)
    assert why["reason"] == "user_error" and why["error"]["message"] == "bad batch"
    log = await agent.read("read_log", job=job, stream="stderr", from_end=True, max_bytes=100)
    assert log["text"].endswith("ValueError: bad batch\n") and len(log["text"]) == 100
    spec = (await agent.read("get_job_spec", job=job))["spec"]
    changed = {"training.global_batch": 8, "training.micro_batch": 2}
    made = await agent.change("resubmit_job", job=job, name="rescued", set_fields=changed)
    found = (await get(live, f"/v1/jobs/{made['id']}"))["spec"]["training"]
    assert (found["global_batch"], found["micro_batch"]) == (8, 2) and spec["training"]["global_batch"] == 4


@task
async def drain_a_rack(agent: Agent, live: Any, make: Any) -> None:
    names = add_nodes(live, "rack-a", 3)
    add_nodes(live, "rack-b", 1)
    racks = await agent.read("list_domains", level="rack")
    assert {each["name"]: each["nodes"] for each in racks["domains"]}["rack-a"] == names
    request = {"level": "rack", "domain": "rack-a", "deadline_s": "2h", "reason": "power at 17:00"}
    job = (await live.submit(name="moves", layout={"dp": 4}))["id"]
    await place_job(live, job, {names[0]: 2, names[1]: 2})
    preview = await agent.preview("drain_domain", **request)
    assert [each["node"] for each in preview["result"]["drains"]] == names
    (move,) = preview["result"]["moves"]
    assert (move["name"], move["effect"]) == ("moves", "waits"), "two nodes leave, and one is left"
    done = await agent.read("drain_domain", **request, confirm=preview["confirm"])
    assert done["result"]["refused"] == {}
    for name in names:
        drain = await get(live, f"/v1/nodes/{name}/drain")
        assert drain["reason"] == "power at 17:00" and drain["deadline_at"] - drain["requested_at"] == 7200
    assert (await live.http.get("/v1/nodes/rack-b-0/drain")).status_code == 404


@task
async def raise_a_quota(agent: Agent, live: Any, make: Any) -> None:
    await live.http.put("/v1/projects/vision", json={"limit": 8, "weight": 2.0})
    await live.submit(name="queued", project="vision")
    queue = await agent.read("list_queue")
    assert [job["name"] for job in queue["jobs"] if job["project"] == "vision"] == ["queued"]
    forecast = await agent.read("simulate_queue", scenario={"quotas": {"vision": {"limit": 16}}})
    assert forecast["summary"].startswith("With other quotas of vision") and forecast["left_out"] == 0
    preview = await agent.preview("set_project_quota", project="vision", guaranteed=4, limit=16)
    assert preview["result"]["limit"] == 16
    await agent.read("set_project_quota", project="vision", guaranteed=4, limit=16, confirm=preview["confirm"])
    found = await get(live, "/v1/projects/vision")
    assert (found["guaranteed"], found["limit"], found["weight"]) == (4, 16, 2.0)


@task
async def compare_two_runs(agent: Agent, live: Any, make: Any) -> None:
    jobs = [(await live.submit(name=name, seed=seed))["id"] for name, seed in (("first", 1), ("second", 2))]
    for job, loss in zip(jobs, (2.0, 3.0), strict=True):
        await live.run(job)
        rows = [("step", 1, {**_step(number), "loss": loss - number / 100}) for number in range(2, 41)]
        await live.report(job, *rows)
    found = await agent.read("compare_jobs", first=jobs[0], second=jobs[1], points=4)
    assert {"path": "seed", "first": 1, "second": 2} in found["differences"]
    assert [each["step"] for each in found["points"]] == [10, 20, 30, 40]
    assert all(each["second_loss"] - each["first_loss"] == pytest.approx(1) for each in found["points"])
    curve = await agent.read("read_metrics", job=jobs[0], after=30, points=5)
    assert [each["step"] for each in curve["points"]] == [32, 34, 36, 38, 40]


def _step(number: int) -> dict[str, Any]:
    row = {"duration_s": 0.5, "tokens": 64, "samples": 4, "samples_hash": number, "stall_s": 0.0}
    return {**row, "step": number, "generation": 1}


@task
async def find_the_slow_rank(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="slow"))["id"]
    await live.run(job)
    slow = {"rank": 3, "node": "local-2", "work_s": 0.9, "usual_s": 0.3, "is_crowded": False}
    await live.report(job, ("stragglers", 1, {"ranks": [slow]}))
    live.cluster.running[job] = {
        str(rank): {"text": f"stack of {rank}", "node": "local-2", "pid": 7, "place": [4, "forward"]} for rank in (0, 3)
    }
    found = await agent.read("find_slow_ranks", job=job)
    assert found["slow"] == [slow]
    stacks = await agent.read("get_stacks", job=job, ranks=[3])
    assert [each["text"] for each in stacks["ranks"]] == ["stack of 3"] and stacks["total"] == 2


@task
async def restore_an_earlier_step(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="restored"))["id"]
    await live.run(job)
    data = {"uri": "file:///s/400", "size_bytes": 5, "files": 1, "duration_s": 1.0}
    for step in (200, 400):
        await live.report(job, ("checkpoint", 1, {"step": step, "generation": 1, **data}))
    await live.report(job, ("state", 1, {"state": "FAILED", "reason": "non_finite", "message": ""}))
    listed = await agent.read("list_checkpoints", job=job)
    assert [each["step"] for each in listed["checkpoints"]] == [400, 200]
    pinned = await agent.change("pin_checkpoint", job=job, step=400)
    assert pinned["pinned"] is True
    made = await agent.change("resubmit_job", job=job, name="from-400", resume_from_step=400)
    assert (await get(live, f"/v1/jobs/{made['id']}"))["spec"]["resume_from"] == f"{job}@400"
    assert (await get(live, f"/v1/jobs/{job}/checkpoints"))["checkpoints"][1]["pinned"] is True


@task
async def close_the_month(agent: Agent, live: Any, make: Any) -> None:
    await held_devices.submit(live.store, "j_month", "ana", project="speech")
    held = held_devices.reservation("j_month", "a", 4)
    await held_devices.allocate(live.store, live.lease, "j_month", held, now=3600.0)
    await held_devices.end(live.store, live.lease, "j_month", now=7200.0)
    window = {"from_s": 0, "to_s": 1e6, "project": "speech"}
    text = (await agent.read("export_usage_csv", group_by=["project", "user"], **window))["csv"]
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["project"], row["user"], float(row["device_hours"])) == ("speech", "ana", 4.0)
    (same,) = (await agent.read("report_usage", group_by=["user"], **window))["rows"]
    assert same["device_hours"] == (await get(live, "/v1/usage?project=speech&to=1000000"))["rows"][0]["device_hours"]


@task
async def submit_a_valid_job(agent: Agent, live: Any, make: Any) -> None:
    wrong = make(name="mine", training={"global_batch": 4, "micro_batch": 3, "sequence": 16, "steps": 10})
    error = await agent.refused("validate_spec", spec=wrong)
    assert error["code"] == "invalid_spec" and error["fields"]
    valid = await agent.read("validate_spec", spec=make(name="mine"))
    assert valid["spec"]["training"]["steps"] == 10 and valid["layouts"]
    made = await agent.change("submit_job", spec=make(name="mine"))
    assert (await get(live, f"/v1/jobs/{made['id']}"))["name"] == "mine"


@task
async def predict_the_start_of_a_job(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="later"))["id"]
    found, why = await agent.read("predict_start", job=job), await get(live, f"/v1/jobs/{job}/why")
    assert found["queue_position"] == why["queue_position"] is not None
    assert found["estimated_start"] == why["estimated_start"]


@task
async def resize_a_job(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="grows", layout={"dp": {"min": 1, "target": 1, "max": 4}}))["id"]
    await live.run(job)
    await agent.change("resize_job", job=job, dp=2)
    assert (await get(live, f"/v1/jobs/{job}"))["intents"]["resize"]["layout"]["dp_shard"] == 2


@task
async def suspend_and_resume_a_job(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="pauses"))["id"]
    assert (await agent.change("suspend_job", job=job, reason="lunch"))["state"] == "SUSPENDED"
    assert (await get(live, f"/v1/jobs/{job}"))["state"] == "SUSPENDED"
    await agent.change("resume_job", job=job)
    assert (await get(live, f"/v1/jobs/{job}"))["state"] in ("SUSPENDED", "QUEUED")  # the controller queues it
    assert "resume" in json.dumps(await get(live, f"/v1/jobs/{job}/events"))


@task
async def cancel_a_job(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="ends"))["id"]
    await agent.change("cancel_job", job=job)
    assert (await get(live, f"/v1/jobs/{job}"))["state"] == "CANCELLED"


@task
async def export_the_evidence_of_an_incident(agent: Agent, live: Any, make: Any) -> None:
    submitted = await live.submit(name="hangs")
    job = submitted["id"]
    await live.run(job)
    data = {"id": "i1", "cause": "no rank moved on", "reason": "hang", "generation": 1, "at_step": 2, "times": {}}
    await live.report(job, ("incident", 1, {**data, "durations": {}, "evidence_bytes": 9, "next_generation": None}))
    folder = Path(urlsplit(submitted["storage_uri"]).path) / "evidence" / "i1"
    folder.mkdir(parents=True)
    found = await agent.read("read_evidence", job=job, number=1)
    assert "no rank moved on" in found["text"] and "incident.json" in found["files"]
    part = await agent.read("read_evidence", job=job, number=1, file="incident.json", offset=1)
    assert part["next_offset"] == part["files"]["incident.json"]
    (content,) = (await agent.client.read_resource(found["resource"])).contents
    assert isinstance(content, BlobResourceContents)
    with zipfile.ZipFile(io.BytesIO(b64decode(content.blob))) as archive:
        assert set(archive.namelist()) == set(found["files"])


@task
async def list_recent_incidents(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="unlucky"))["id"]
    await live.run(job)
    now = live.services.clock()
    for number, seen_s in ((1, now - 10 * 86400), (2, now - 60)):
        data = {"id": f"r{number}", "cause": f"cause {number}", "generation": 1, "at_step": 2}
        times = {"times": {"seen_s": seen_s}, "durations": {"total": 4.0}}
        await live.report(job, ("incident", 1, {**data, **times}))
    found = await agent.read("list_recent_incidents", within_s="1d")
    mine = [each for each in found["incidents"] if each["job"] == job]
    assert [(each["cause"], each["total_s"]) for each in mine] == [("cause 2", 4.0)]
    assert (await agent.read("list_incidents", job=job))["total"] == 2


@task
async def read_the_log_of_a_rank(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="talks"))["id"]
    await live.run(job)
    lines = "".join(f"line {number}\n" for number in range(3000))
    live.cluster.logs[job, 1, 2, "stdout"] = lines
    text, offset = "", 0
    while len(text) < len(lines):
        part = await agent.read("read_log", job=job, rank=2, offset=offset, max_bytes=10_000)
        text, offset = text + part["text"], part["next_offset"]
    assert text == lines


@task
async def close_and_open_a_node(agent: Agent, live: Any, make: Any) -> None:
    (name,) = add_nodes(live, "rack-c", 1)
    assert (await agent.change("cordon_node", node=name, reason="fan is loud"))["status"] == "cordoned"
    listed = await agent.read("list_nodes", statuses=["cordoned"])
    assert [(each["name"], "fan is loud" in each["why"]) for each in listed["nodes"]] == [(name, True)]
    health = {each["name"]: each["health"]["status"] for each in (await get(live, "/v1/nodes"))["nodes"]}
    assert health[name] == "cordoned" and listed["by_status"]["cordoned"] == 1
    assert (await agent.change("uncordon_node", node=name))["status"] == "open"
    health = {each["name"]: each["health"]["status"] for each in (await get(live, "/v1/nodes"))["nodes"]}
    assert health[name] == "open"


@task
async def rotate_a_secret_and_deliver_again(agent: Agent, live: Any, make: Any) -> None:
    async with receiver(live) as url:
        made = await agent.change("create_hook", project="ci", name="pipeline", url=url)
        rotated = await agent.change("rotate_hook_secret", project="ci", hook=made["id"])
        assert rotated["secret"].startswith("whsec_") and rotated["secret"] != made["secret"]
        answer = await live.http.post(f"/v1/projects/ci/hooks/{made['id']}/test")
        first = answer.json()["id"]
        again = await agent.change("redeliver", project="ci", hook=made["id"], delivery=first)
        async with AsyncClient(live.url) as client:
            delivered = await client.wait_for_delivery("ci", made["id"], again["id"])
        assert delivered.state == "delivered"
        listed = await agent.read("list_deliveries", project="ci", hook=made["id"])
        assert [each["redelivery_of"] for each in listed["deliveries"]] == [first, None]


@contextlib.asynccontextmanager
async def receiver(live: Any) -> AsyncIterator[str]:
    """Run the delivery task of the server and a receiver; yield the receiver's URL."""
    settings = live.services.settings
    object.__setattr__(settings, "hook_private_networks", ("127.0.0.0/8",))  # settings are frozen
    async with running_receiver() as running:
        work = HookDelivery(live.store, settings, lambda: live.lease, interval_s=0.02, keys=KeySource(settings))
        delivering = asyncio.create_task(work.run())
        yield running.url()
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)


@task
async def find_who_changed_a_quota(agent: Agent, live: Any, make: Any) -> None:
    for limit in (3, 5):
        await live.http.put("/v1/projects/audited", json={"limit": limit})
    found = await agent.read("list_changes", action="projects.put", object="audited", limit=1)
    (newest,) = found["records"]
    assert (newest["before"]["limit"], newest["after"]["limit"]) == (3, 5)
    assert newest["actor"] == (await get(live, "/v1/me"))["subject"]
    older = await agent.read("list_changes", action="projects.put", object="audited", cursor=found["next_cursor"])
    assert [each["after"]["limit"] for each in older["records"]] == [3]


@task
async def create_and_revoke_a_token(agent: Agent, live: Any, make: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "kim", "kind": "user"})
    made = await agent.change("create_token", name="notebook", subject="kim", role="viewer", expires_in_s="1d")
    headers = {"Authorization": f"Bearer {made['value']}"}
    assert (await live.http.get("/v1/me", headers=headers)).status_code == 200
    assert [each["name"] for each in (await agent.read("list_tokens", subject="kim"))["tokens"]] == ["notebook"]
    await agent.change("revoke_token", token_id=made["id"])
    assert (await live.http.get("/v1/me", headers=headers)).status_code == 401


@task
async def set_budgets(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="costly"))["id"]
    await agent.change("set_job_budget", job=job, device_hours=12.5)
    assert (await get(live, f"/v1/jobs/{job}"))["intents"]["budget"]["device_hours"] == 12.5
    await agent.change("set_project_budget", project="frugal", device_hours=100)
    assert (await get(live, "/v1/projects/frugal"))["budget"]["device_hours"] == 100
    await agent.change("set_project_budget", project="frugal")
    assert (await get(live, "/v1/projects/frugal"))["budget"] is None


@task
async def add_and_remove_a_member(agent: Agent, live: Any, make: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "zoe", "kind": "user"})
    await agent.change("set_member", project="team", subject="zoe", role="editor")
    assert [each["role"] for each in (await get(live, "/v1/projects/team/members"))["members"]] == ["editor"]
    assert "zoe" in [each["subject"] for each in (await agent.read("list_identities"))["identities"]]
    await agent.change("remove_member", project="team", subject="zoe")
    assert (await agent.read("list_members", project="team"))["members"] == []


@task
async def verify_the_samples_and_the_history(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="counted"))["id"]
    await live.run(job)
    assert (await agent.read("get_ledger", job=job)) == await get(live, f"/v1/jobs/{job}/ledger")
    assert (await agent.read("list_generations", job=job))["generations"][0]["number"] == 1
    events = await agent.read("list_events", job=job, limit=1)
    assert events["next_after"] == events["events"][0]["number"] == 1


@task
async def find_a_job_and_the_state_of_the_server(agent: Agent, live: Any, make: Any) -> None:
    job = (await live.submit(name="labelled", labels={"team": "nlp"}))["id"]
    found = await agent.read("list_jobs", states=["QUEUED"], labels={"team": "nlp"}, author="me")
    assert [each["id"] for each in found["jobs"]] == [job]
    server = await agent.read("show_server")
    assert server["version"]["version"] == (await get(live, "/version"))["version"]
    assert (await agent.read("show_identity"))["everywhere"] == "admin"


def test_there_are_24_tasks() -> None:
    assert len(TASKS) == len({each.__name__ for each in TASKS}) == 24


@pytest.mark.parametrize("each", TASKS, ids=lambda each: each.__name__)
async def test_a_task_is_done_over_http(each: Task, live: Any, make_spec: Any) -> None:
    async with mcp_over_http(live.url) as url, agent_over_http(url, live.token) as agent:
        await each(agent, live, make_spec)


async def test_one_agent_does_all_tasks_over_stdio(live: Any, make_spec: Any) -> None:
    async with agent_over_stdio(live.url, live.token) as agent:
        for each in TASKS:
            await each(agent, live, make_spec)
