"""Data prepared by Ray Data. The example loses a rank and has the undisturbed result. A function makes records."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.spec_input.spec_file import read_spec
from tests.support.checks.job_leaks import find_traces
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STEPS = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that the example's script makes of the standard library."""
    target = tmp_path_factory.mktemp("prepare") / "cpython.jsonl"
    subprocess.run([sys.executable, EXAMPLES / "prepare_cpython.py", target], check=True, timeout=60)
    return target


def manifests(served: Server) -> dict[Path, int]:
    """Return the manifests of prepared data, with the time at which each was written."""
    return {path: path.stat().st_mtime_ns for path in served.state.rglob("datasets/*/meta.json")}


@pytest.mark.slow
def test_the_example_loses_a_rank_and_the_next_job_finds_the_data(served: Server, source: Path) -> None:
    changes = [f"workload.data.prepare.train=[{source}]", f"training.steps={STEPS}", "snapshot={every_steps: 1}"]
    fault = f"faults=[{{at: {{rank: 1, step: {STEPS // 2}, phase: backward}}, do: sigkill}}]"
    example = EXAMPLES / "prepare-cpython.yaml"
    before = manifests(served)
    disturbed = served.run(read_spec(example, [*changes, fault]))
    (made,) = manifests(served).items() - before.items()
    control = served.run(read_spec(example, [*changes, "faults=[]"]))
    assert control.state == "SUCCEEDED", (control.reason, control.message, control.error)
    assert manifests(served).items() - before.items() == {made}
    assert_same_result(served, disturbed, control)
    (incident,) = disturbed.incidents
    assert (incident.reason, incident.rank, incident.steps_lost) == ("rank_exit", 1, 0)
    rows = list(served.client.steps(disturbed.id))
    assert rows[0].loss is not None and rows[-1].loss is not None and rows[-1].loss < 0.8 * rows[0].loss


def function(name: str, folder: Path, **parts: Any) -> dict[str, Any]:
    """Return a function job that reads records which a function made."""
    prepare = {"format": "jsonl", "train": [str(folder / "points.jsonl")], "function": "mine:make", "batch_rows": 16}
    return {
        "name": name,
        "workload": {"kind": "function", "function": "mine:train", "data": {"prepare": prepare}},
        "code": {"working_dir": str(folder)},
        "training": {"steps": 12, "global_batch": 8, "micro_batch": 2},
        "layout": {"dp": 2},
        **parts,
    }


MINE = """
import numpy
import torch


def make(batch):
    return {"x": numpy.stack([batch["a"], batch["b"]], axis=1).astype("float32"), "y": batch["y"].astype("float32")}


def train(run):
    model = torch.nn.Linear(2, 1)
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.track(model=model, optimizer=optimizer)
    for _ in run.steps():
        total = 0.0
        for batch in run.micro_batches():
            fields = run.records[batch.indices]
            loss = ((model(fields["x"])[:, 0] - fields["y"]) ** 2 * batch.weights).sum()
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        run.report(loss=total)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the code and points of a plane."""
    (tmp_path / "mine.py").write_text(MINE)
    lines = [f'{{"a": {n % 7}, "b": {n % 5}, "y": {n % 7 - n % 5}}}\n' for n in range(100)]
    (tmp_path / "points.jsonl").write_text("".join(lines))
    return tmp_path


@pytest.mark.slow
def test_a_function_trains_on_records_that_a_function_made(served: Server, folder: Path) -> None:
    fault = {"at": {"rank": 1, "step": 6, "phase": "optimizer"}, "do": "sigkill"}
    disturbed = served.run(function("records-disturbed", folder, faults=[fault]))
    control = served.run(function("records", folder))
    assert control.state == "SUCCEEDED", (control.reason, control.message, control.error)
    assert_same_result(served, disturbed, control)
    seen = [json.loads(path.read_text()) for path in manifests(served)]
    # Driver, tasks and their scratch end.
    eventually(lambda: not find_traces(served, [disturbed.id, control.id]))
    (meta,) = [meta for meta in seen if meta.get("recipe", {}).get("function") == "mine:make"]
    assert (meta["splits"]["train"]["records"], len(meta["fields"])) == (100, 2)


def test_a_data_function_that_raises_ends_the_job_with_its_traceback(served: Server, folder: Path) -> None:
    (folder / "mine.py").write_text("def make(batch):\n    raise ValueError('bad')\n")
    job = served.run(function("records-raise", folder), within_s=90)
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert "function mine:make failed at" in job.message and "ValueError: bad" in job.message
    assert (
        job.error is not None
        and "mine.py" in job.error["traceback"]
        and "regroup/workers" not in job.error["traceback"]
    )
