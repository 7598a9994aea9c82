"""The sizes that a job can have: with the API, the client and the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.client.async_client import AsyncClient
from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import find_capacity
from regroup.service.planner.predictions import predict_step
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.placement.traffic import axes_of_spec
from regroup.service.spec.job import parse_spec
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes

ELASTIC = {"dp": {"min": 1, "target": 2, "max": 4}}


@pytest.fixture
async def job(live: Any) -> dict[str, Any]:
    """A running job of a model that the planner knows, on two nodes of two cores."""
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    answer = await live.http.post("/v1/jobs", json=auto_json(ELASTIC, micro_batch=4))
    assert answer.status_code == 201, answer.text
    await live.run(answer.json()["id"])
    return answer.json()


async def sizes(live: Any, job: dict[str, Any]) -> Any:
    answer = await live.http.get(f"/v1/jobs/{job['id']}/sizes")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_legal_size_has_the_prediction_of_the_planner(live: Any, job: dict[str, Any]) -> None:
    found, spec = await sizes(live, job), parse_spec(job["spec"])
    assert [each["ranks"] for each in found["sizes"]] == [layout.world_size for layout in spec.ladder] == [1, 2, 3, 4]
    capacity = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2))
    for each, layout in zip(found["sizes"], spec.ladder, strict=True):
        expected = predict_step(spec, layout, capacity.cluster(layout.world_size), capacity.constants)
        predicted = each["prediction"]
        assert (predicted["step_s"], predicted["peak_bytes"]) == (expected.step_s, expected.peak_bytes)
        assert sum(predicted["memory_parts_bytes"].values()) == pytest.approx(predicted["peak_bytes"])
        traffic = {axis.name: axis.wire_bytes for axis in axes_of_spec(spec, layout) if axis.degree > 1}
        assert {axis["name"]: axis["wire_bytes"] for axis in each["axes"]} == traffic
    assert (found["open_ranks"], found["why_not"], found["requested"]) == (4, "", None)


async def test_a_measured_size_replaces_its_prediction(live: Any, job: dict[str, Any]) -> None:
    small, middle, *_ = (await sizes(live, job))["sizes"]
    assert (small["expected_step_s"], small["is_measured"]) == (0.5, True), "the job runs with one rank"
    assert small["basis"] == "measured in generation 1" and small["tokens_per_s"] == 16 * 64 / 0.5
    assert middle["basis"].startswith("predicted, and scaled by the present size: 0.5 s measured")
    assert not middle["is_measured"]
    error = 0.5 / small["prediction"]["step_s"]
    assert middle["expected_step_s"] == pytest.approx(error * middle["prediction"]["step_s"])


async def test_a_job_without_steps_has_predictions_only(live: Any) -> None:
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    made = (await live.http.post("/v1/jobs", json=auto_json(ELASTIC, micro_batch=4))).json()
    found = await sizes(live, made)
    assert found["current"] is None
    assert {each["basis"] for each in found["sizes"]} == {"predicted by the planner"}
    assert all(each["expected_step_s"] == each["prediction"]["step_s"] for each in found["sizes"])


async def test_a_spec_has_predictions_before_it_is_submitted(live: Any, capsys: Any, tmp_path: Path) -> None:
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    spec = auto_json(ELASTIC, micro_batch=4)
    text = json.dumps(spec)
    answer = await live.http.post("/v1/spec/sizes", content=text, headers={"Content-Type": "application/yaml"})
    found = answer.json()
    assert [each["ranks"] for each in found["sizes"]] == [1, 2, 3, 4] and found["open_ranks"] == 4
    assert (await live.http.get("/v1/jobs")).json()["jobs"] == [], "nothing is submitted"
    made = (await live.http.post("/v1/jobs", json=spec)).json()
    assert found["sizes"] == (await sizes(live, made))["sizes"], "the same as those of the job"
    assert (await live.client(lambda client: client.spec_sizes(spec))).model_dump(mode="json") == found
    async with AsyncClient(live.url, token=live.token) as client:
        assert (await client.spec_sizes(spec)).model_dump(mode="json") == found
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["validate", str(tmp_path / "spec.yaml"), "--sizes", "--server", live.url])
    first, head, *rows = capsys.readouterr().out.splitlines()
    assert first.endswith("is a valid spec") and head.split() == ["RANKS", "LAYOUT", "STEP", "MEMORY", "BASIS"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]


async def test_a_spec_that_the_planner_cannot_model_names_the_reason(live: Any) -> None:
    script = {"name": "s", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": ELASTIC}
    found = (await live.http.post("/v1/spec/sizes", json=script)).json()
    assert found["why_not"] and [each["expected_step_s"] for each in found["sizes"]] == [None] * 4
    invalid = await live.http.post("/v1/spec/sizes", json={**script, "name": "S"})
    assert (invalid.status_code, invalid.json()["code"]) == (422, "invalid_spec")


async def test_the_gap_is_that_of_earlier_resizes(live: Any, job: dict[str, Any]) -> None:
    assert (await sizes(live, job))["gap"] == {
        "seconds": 5.0, "basis": "assumed: this job had no resize and no recovery yet",
    }  # fmt: skip
    await live.report(job["id"], incident("i1", "rank_exit", 9.0))
    assert (await sizes(live, job))["gap"]["seconds"] == 9.0
    await live.report(job["id"], incident("i2", "resized", 2.0), incident("i3", "resized", 4.0))
    assert (await sizes(live, job))["gap"] == {"seconds": 3.0, "basis": "median of 2 resizes of this job"}


def incident(name: str, reason: str, total_s: float) -> tuple[str, int, dict[str, Any]]:
    data = {"id": name, "cause": name, "reason": reason, "generation": 1, "at_step": 1, "times": {}}
    return "incident", 1, {**data, "durations": {"total": total_s}}


async def test_a_program_has_sizes_that_are_estimated_from_those_that_it_had(live: Any) -> None:
    script = {"name": "s", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": ELASTIC}
    made = (await live.http.post("/v1/jobs", json=script)).json()
    await live.run(made["id"])
    found = await sizes(live, made)
    assert "the planner cannot model user code" in found["why_not"] or found["why_not"]
    predicted = {each["ranks"]: (each["basis"], each["prediction"], each["axes"]) for each in found["sizes"]}
    assert predicted[1] == ("measured in generation 1", None, [])
    assert predicted[2] == ("estimated from 1 measured size", None, [])
    assert found["sizes"][1]["expected_step_s"] < 0.5


async def test_a_pending_resize_is_shown_and_the_commands_agree(live: Any, job: dict[str, Any], capsys: Any) -> None:
    await live.http.post(f"/v1/jobs/{job['id']}/resize", json={"dp": 2})
    found = await live.client(lambda client: client.job_sizes(job["id"]))
    assert (found.current, found.requested) == (Layout(), Layout(dp_shard=2))
    with pytest.raises(SystemExit) as left:
        await asyncio.to_thread(main, ["sizes", job["id"], "--server", live.url])
    assert left.value.code in (0, None)
    text = capsys.readouterr().out
    assert "1 *" in text and "dp_shard=4" in text and "a resize takes about 5 s without steps" in text


async def test_an_unavailable_cluster_leaves_the_sizes_without_predictions(live: Any, job: dict[str, Any]) -> None:
    live.cluster.reachable = False
    found = await sizes(live, job)
    assert found["why_not"] and [each["prediction"] for each in found["sizes"]] == [None] * 4
    assert (found["sizes"][0]["expected_step_s"], found["open_ranks"]) == (0.5, None)
