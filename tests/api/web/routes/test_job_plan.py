"""Jobs whose layout the planner chooses, and predictions for jobs: with the API and the command line."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa

from regroup.api.cli.main import main
from regroup.service.planner.host_memory import HostMemory
from tests.support.inputs.auto_layout_specs import LLAMA_7B, auto, auto_json, cpu_nodes, gpu_nodes

AUTO: dict[str, Any] = auto_json({"auto": {"ranks": 4}})


@pytest.fixture
def nodes(live: Any) -> None:
    """Two nodes of two cores."""
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)


async def submitted(live: Any, spec: dict[str, Any]) -> dict[str, Any]:
    answer = await live.http.post("/v1/jobs", json=spec)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.usefixtures("nodes")
async def test_the_job_stores_the_chosen_layout_and_the_reason(live: Any) -> None:
    job = await submitted(live, AUTO)
    layout, training = job["spec"]["layout"], job["spec"]["training"]
    assert layout["auto"] is None
    assert layout["dp"]["target"] * layout["tp"] * layout["pp"] == 4
    plan = (await live.http.get(f"/v1/jobs/{job['id']}/plan")).json()
    assert plan["requested"] == {"ranks": {"min": 4, "target": 4, "max": 4}, "refine": "off"}
    assert (plan["given"], plan["generations"], plan["why_not"]) == ([], [], "")
    best = plan["report"]["plans"][0]
    assert (best["micro_batch"], best["checkpointing"]) == (
        training["micro_batch"], training["activation_checkpointing"],
    )  # fmt: skip
    assert len(plan["report"]["plans"]) > 1 and plan["report"]["lost"] and "# " in plan["report"]["markdown"]
    again = await submitted(live, {**job["spec"], "name": "again"})
    assert again["spec"] == {**job["spec"], "name": "again"}, "it can be submitted unchanged"


@pytest.mark.usefixtures("nodes")
async def test_a_repeated_request_returns_the_job_even_if_the_cluster_changed(live: Any) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await live.http.post("/v1/jobs", json=auto_json(), headers=headers)
    live.cluster.remove_node("n1")
    second = await live.http.post("/v1/jobs", json=auto_json(), headers=headers)
    assert first.json()["id"] == second.json()["id"]
    assert first.json()["spec"] == second.json()["spec"]


@pytest.mark.usefixtures("nodes")
async def test_validation_chooses_a_layout_and_stores_nothing(live: Any) -> None:
    answer = await live.http.post("/v1/spec/validate", json=auto_json())
    assert answer.status_code == 200, answer.text
    largest = answer.json()["ladder"][-1]
    assert largest["dp_replicate"] * largest["dp_shard"] * largest["tp"] * largest["pp"] == 4
    assert (await live.http.get("/v1/jobs")).json()["jobs"] == []


@pytest.mark.parametrize(
    ("spec", "pointer", "message"),
    [
        (auto_json(model=LLAMA_7B), "/layout/auto/ranks", "out of memory"),
        (auto_json({"auto": {"ranks": 0}}), "/layout/auto/ranks", None),
        (auto_json({"auto": {"ranks": {"min": 3, "target": 2, "max": 4}}}), "/layout/auto/ranks", "min <= target"),
        (auto_json({"auto": {}, "dp": 2}), "/layout", "set layout.auto.ranks instead"),
        (auto_json({"auto": {}, "offload": True}), "/layout", "does not consider it"),
        (auto_json({"dp": 2}), "/", "training.micro_batch is required"),
        ({**auto_json(), "workload": {"kind": "script", "entrypoint": "/x.py"}, "training": None}, "/layout",
         "does not apply to a script"),
        ({**auto_json(), "workload": {"kind": "function", "function": "m:f"},
          "training": {"global_batch": 4, "steps": 4}}, "/", "the planner cannot model user code"),
        (auto_json(device="cuda"), "/layout/auto", "no node of the cluster fits 1 rank of 1 CUDA device"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("nodes")
async def test_an_impossible_plan_names_the_field_and_the_limit(
    live: Any, spec: dict[str, Any], pointer: str, message: str | None
) -> None:
    answer = await live.http.post("/v1/jobs", json=spec)
    assert answer.status_code == 422, answer.text
    errors = answer.json()["errors"]
    assert any(each["pointer"].startswith(pointer.rstrip("/")) for each in errors), errors
    assert message is None or any(message in each["detail"] for each in errors), errors


async def test_an_unavailable_cluster_is_not_an_invalid_spec(live: Any) -> None:
    live.cluster.reachable = False
    assert (await live.http.post("/v1/jobs", json=auto_json())).status_code == 503
    assert (await live.http.post("/v1/jobs", json={**auto_json({"dp": 2}, micro_batch=1)})).status_code == 201


async def test_a_project_limits_the_chosen_layout(live: Any) -> None:
    for node in gpu_nodes(2):
        live.cluster.add_node(node)
    answer = await live.http.put("/v1/projects/default", json={"guaranteed": 0, "limit": 6, "admits": {"max_ranks": 4}})
    assert answer.status_code == 200, answer.text
    job = await submitted(live, auto_json(device="cuda"))
    layout = job["spec"]["layout"]
    assert layout["dp"]["max"] * layout["tp"] * layout["pp"] == 4
    answer = await live.http.post("/v1/jobs", json={**auto_json({"auto": {"ranks": 8}}, device="cuda"), "name": "b"})
    assert answer.status_code == 422 and "allows 4 per job" in answer.text


async def ran(live: Any, job_id: str) -> None:
    """Record a prediction of the controller for the job's generation, and report steps."""
    await live.run(job_id)
    record = {"device": "cpu", "ranks": 1, "probe_job_id": "job_9", "step_s": 0.4, "peak_bytes": 2e9, "bubble": None}
    await live.store.predictions.put(live.lease, job_id, 1, record)
    extra = {"peak_bytes": 1.6e9}
    rows = [("step", 1, {"step": n, "generation": 1, "duration_s": 0.5, "tokens": 64, "samples": 4,
                         "samples_hash": n, "extra": extra}) for n in range(2, 6)]  # fmt: skip
    await live.report(job_id, *rows)


@pytest.mark.usefixtures("nodes")
async def test_predicted_and_measured_values_are_shown_together(live: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = (await submitted(live, AUTO))["id"]
    assert (await live.http.get(f"/v1/jobs/{job_id}")).json()["prediction"] is None
    await ran(live, job_id)
    found = (await live.http.get(f"/v1/jobs/{job_id}")).json()["prediction"]
    assert found["predicted"] == {"step_s": 0.4, "peak_bytes": 2e9, "bubble": None}
    assert found["measured"] == {"step_s": 0.5, "peak_bytes": 1.6e9, "bubble": None}
    assert (found["relative_error"]["step_s"], found["relative_error"]["bubble"]) == (pytest.approx(-0.2), None)
    plan = await live.client(lambda client: client.job_plan("gpt"))
    assert [each.generation for each in plan.generations] == [1] and plan.generations[0].relative_error.peak_bytes > 0

    for arguments in (("get", "gpt"), ("plan", "--job", "gpt")):
        with pytest.raises(SystemExit) as left:
            await asyncio.to_thread(main, [*arguments, "--server", live.url])
        assert left.value.code in (0, None)
        text = capsys.readouterr().out
        assert "0.5 s, 0.4 s predicted (-20%)" in text, text
    assert "chosen at submission, for 4 ranks" in text and "REJECTED KINDS" in text
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["plan", "--job", "gpt", "--json", "--server", live.url])
    assert json.loads(capsys.readouterr().out)["generations"][0]["device"] == "cpu"


async def test_a_job_with_a_fixed_layout_has_predictions_but_no_plan(live: Any) -> None:
    job_id = (await live.submit())["id"]
    await ran(live, job_id)
    plan = (await live.http.get(f"/v1/jobs/{job_id}/plan")).json()
    assert (plan["requested"], plan["report"], len(plan["generations"])) == (None, None, 1)
    script = {"name": "s", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": {"dp": 2}}
    other = await submitted(live, script)
    plan = (await live.http.get(f"/v1/jobs/{other['id']}/plan")).json()
    assert plan["generations"] == [] and "the planner cannot model user code" in plan["why_not"]


@pytest.mark.usefixtures("nodes")
async def test_a_parsed_spec_is_sent_without_its_defaults(live: Any) -> None:
    spec = auto()
    job = await live.client(lambda client: client.submit(spec))
    assert job.spec.layout.auto is None
    checked = await live.client(lambda client: client.validate(spec))
    assert checked.ladder


async def test_why_states_the_host_memory_of_the_newest_generation(live: Any) -> None:
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    assert (await live.http.get(f"/v1/jobs/{job_id}/why")).json()["host_memory"] is None
    record = {"step_s": 0.4, "host_memory": asdict(HostMemory(8, 4, 20e9, 0.0, 1e11))}
    await live.store.predictions.put(live.lease, job_id, 1, record)
    why = (await live.http.get(f"/v1/jobs/{job_id}/why")).json()
    assert why["host_memory"] == "20 GB per rank: 4 sets of 5 GB for snapshots and mirrors"
    assert [each for each in why["advice"] if "the smallest node has 100 GB: set snapshot.mirror: off" in each]


@pytest.mark.parametrize(
    "record",
    [
        {"step_s": 0.4, "host_memory": {"ranks": "two"}},
        {"step_s": None, "device": "cpu"},
        {"step_s": "fast", "peak_bytes": [], "bubble": True, "device": 7, "ranks": "two", "probe_job_id": 3},
    ],
)
async def test_a_prediction_that_lacks_fields_is_shown_without_them(live: Any, record: dict[str, Any]) -> None:
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    await live.store.predictions.put(live.lease, job_id, 1, record)
    for path in ("", "/plan", "/why", "/curves"):
        answer = await live.http.get(f"/v1/jobs/{job_id}{path}")
        assert answer.status_code == 200, (path, answer.text)
    found = (await live.http.get(f"/v1/jobs/{job_id}")).json()["prediction"]
    step_s = record["step_s"] if isinstance(record["step_s"], float) else None
    assert found["predicted"] == {"step_s": step_s, "peak_bytes": None, "bubble": None}
    assert (found["ranks"], found["measured"]["step_s"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("trial", "shown"),
    [
        ({"layout": {"dp_shard": 2}}, 1),
        ({"layout": {"dp_shard": "wide"}, "predicted_s": 1.0}, 0),
        ({"layout": {"dp_shard": 2}, "predicted_s": "slow", "generation": None}, 1),
        ({"kept": {"dp_shard": "wide"}}, 0),
        ({"kept": {"dp_shard": 2}}, 0),
    ],
)
async def test_a_trial_that_lacks_fields_is_shown_without_them(live: Any, trial: dict[str, Any], shown: int) -> None:
    job_id = (await live.submit())["id"]
    await live.store.predictions.note_trial(live.lease, job_id, trial, now=1.0)
    answer = await live.http.get(f"/v1/jobs/{job_id}/plan")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["trials"]) == shown


async def test_a_plan_with_a_damaged_report_is_shown_without_it(live: Any) -> None:
    job_id = (await live.submit())["id"]
    damaged = '{"requested": 4, "given": 1, "planned_s": "now", "report": {"question": "?"}}'
    async with live.store._database.write() as connection:
        values = {"id": job_id, "data": damaged}
        await connection.execute(sa.text("INSERT INTO plans (job_id, data) VALUES (:id, :data)"), values)
    answer = await live.http.get(f"/v1/jobs/{job_id}/plan")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["requested"], found["given"], found["planned_s"], found["report"]) == (None, [], None, None)
