"""/v1/jobs/{job}/stacks over HTTP."""

FOUND = {
    "10": {"node": "b", "pid": 7, "place": None, "text": "process 7 does not answer: it is stopped by a signal"},
    "2": {"node": "a", "pid": 5, "place": (3, "backward"), "text": "Thread 0x1 (most recent call first):"},
}


async def test_ranks_are_in_order_with_step_and_phase(live):
    job_id = (await live.submit())["id"]
    live.cluster.running[job_id] = FOUND
    answer = await live.http.get(f"/v1/jobs/{job_id}/stacks")
    ranks = answer.json()["ranks"]
    assert [(rank["rank"], rank["node"], rank["step"], rank["phase"]) for rank in ranks] == [
        (2, "a", 3, "backward"),
        (10, "b", None, None),
    ]
    assert ranks[0]["text"].startswith("Thread")


async def test_a_job_without_ranks_is_404(live):
    job_id = (await live.submit())["id"]
    answer = await live.http.get(f"/v1/jobs/{job_id}/stacks")
    assert answer.status_code == 404 and "no ranks" in answer.json()["detail"]
