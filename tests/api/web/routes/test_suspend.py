"""Suspend and resume with the API, the client and the command line."""

import asyncio
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.client.job import Job


def states(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["data"]["to"], each["data"]["reason"]) for each in events if each["type"] == "state"]


async def lets_go(live: Any, job: str, job_events: Any) -> None:
    """Report that the supervisor has saved the last step and released all nodes."""
    await live.report(job, job_events.state("RESIZING", "suspended"), job_events.state("QUEUED", "suspended"))


async def test_a_queued_job_is_suspended_immediately_and_resumed(live: Any) -> None:
    job = (await live.submit())["id"]
    response = (await live.http.post(f"/v1/jobs/{job}/suspend")).json()
    assert (response["state"], response["reason"], response["message"]) == ("SUSPENDED", "suspended", "on request")
    again = await live.http.post(f"/v1/jobs/{job}/suspend", json={"reason": "once more"})
    assert again.status_code == 202 and again.json()["version"] == response["version"]
    why = (await live.http.get(f"/v1/jobs/{job}/why")).json()
    assert "without devices" in why["summary"] and f"regroup resume {job}" in why["advice"][-1]
    assert await live.store.queued_jobs() == []
    back = await live.http.post(f"/v1/jobs/{job}/resume")
    assert back.status_code == 202
    assert (back.json()["state"], back.json()["reason"]) == ("QUEUED", "resumed")
    assert (await live.http.post(f"/v1/jobs/{job}/resume")).json()["version"] == back.json()["version"]


async def test_a_running_job_releases_its_nodes_before_it_is_suspended(live: Any, job_events: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    response = (await live.http.post(f"/v1/jobs/{job}/suspend", json={"reason": "for the night"})).json()
    assert response["state"] == "RUNNING" and response["intents"]["suspend"]["why"] == "for the night"
    await lets_go(live, job, job_events)
    held = (await live.http.get(f"/v1/jobs/{job}")).json()
    assert (held["state"], held["message"]) == ("SUSPENDED", "for the night")
    events = (await live.http.get(f"/v1/jobs/{job}/events")).json()["events"]
    assert states(events)[-3:] == [("RESIZING", "suspended"), ("QUEUED", "suspended"), ("SUSPENDED", "suspended")]


async def test_an_early_resume_cancels_the_suspension(live: Any, job_events: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    await live.http.post(f"/v1/jobs/{job}/suspend")
    response = (await live.http.post(f"/v1/jobs/{job}/resume")).json()
    assert response["state"] == "RUNNING" and "suspend" not in response["intents"]
    await lets_go(live, job, job_events)
    assert (await live.http.get(f"/v1/jobs/{job}")).json()["state"] == "QUEUED", "too late to keep its nodes"


async def test_an_impossible_request_is_rejected(live: Any, job_events: Any) -> None:
    job = (await live.submit())["id"]
    for wrong in ({"reason": ""}, {"why": "x"}):
        assert (await live.http.post(f"/v1/jobs/{job}/suspend", json=wrong)).status_code == 422, wrong
    await live.http.post(f"/v1/jobs/{job}/cancel")
    for verb in ("suspend", "resume"):
        answer = await live.http.post(f"/v1/jobs/{job}/{verb}")
        assert answer.status_code == 409 and "is CANCELLED" in answer.json()["detail"]
    running = (await live.submit(name="other"))["id"]
    await live.run(running)
    await live.http.post(f"/v1/jobs/{running}/cancel")
    assert (await live.http.post(f"/v1/jobs/{running}/suspend")).status_code == 409
    suspended = (await live.submit(name="third"))["id"]
    await live.http.post(f"/v1/jobs/{suspended}/suspend")
    assert (await live.http.post(f"/v1/jobs/{suspended}/resize", json={"dp": 1})).status_code == 409
    assert (await live.http.post(f"/v1/jobs/{suspended}/cancel")).json()["state"] == "CANCELLED"


async def test_the_commands(live: Any, job_events: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = (await live.submit())["id"]
    await live.run(job)

    def typed(*words: str) -> int:
        try:
            main([*words, "--server", live.url])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    waiting = asyncio.create_task(live.client(lambda _: typed("suspend", "gpt", "--wait", "--reason", "night")))
    async with asyncio.timeout(10):
        while "suspend" not in (await live.store.job(job)).intents:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await lets_go(live, job, job_events)
    assert await waiting == 0
    assert "gpt is suspended at step 1" in capsys.readouterr().out
    assert await live.client(lambda _: typed("resume", "gpt")) == 0
    assert "gpt is QUEUED at step 1" in capsys.readouterr().out


async def test_the_methods_of_a_job_object(live: Any) -> None:
    job = (await live.submit())["id"]

    def rests() -> list[str]:
        handle, found = Job(job, url=live.url), list[str]()
        for call_client in (handle.suspend, handle.resume):
            call_client()
            found.append(handle.status)
        handle.close()
        return found

    assert await asyncio.to_thread(rests) == ["SUSPENDED", "QUEUED"]
