"""A function of a notebook cell as a job: the example in a real kernel, and an error."""

import linecache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import regroup
from regroup.api.client.job import JobNotSucceededError
from tests.support.servers.regroup_server import Server

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "notebook.ipynb"
CELL = """
class Broken(Exception):
    pass


def train(run):
    raise Broken("this text is not read")  # this very line
"""


@pytest.mark.slow
def test_the_example_trains_loses_a_rank_and_finishes(
    served: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGROUP_SERVER", served.url)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell["id"]: cell.get("outputs", []) for cell in notebook.cells}
    assert "image/png" in outputs["plot"][-1]["data"]
    (watched,) = outputs["watch"]
    assert "SUCCEEDED" in watched["data"]["text/plain"] and "0 steps lost" in watched["data"]["text/plain"]
    assert "step 100/100" in watched["data"]["text/html"]
    assert "0 steps lost" in outputs["incidents"][0]["text"]
    assert "'accuracy':" in outputs["result"][0]["data"]["text/plain"]
    job = served.client.get("spirals")
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.steps_lost) == ("rank_exit", 1, 0)
    assert [formed.restore["kind"] for formed in served.client.generations(job.id)][1:] == ["memory"]
    assert served.client.ledger(job.id).exact
    assert job.result["accuracy"] > 0.9
    notes = [event.data["kind"] for event in served.client.events(job.id) if event.type == "note"]
    assert notes and "launcher" not in notes, "ranks were not forked"


def test_the_example_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


def test_an_error_in_a_cell_is_raised_with_the_line_of_the_cell(served: Server, capsys: Any) -> None:
    linecache.cache["<cell 7>"] = (len(CELL), None, CELL.splitlines(keepends=True), "<cell 7>")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, "<cell 7>", "exec"), names)
    job = regroup.submit(names["train"], name="broken", steps=2, global_batch=2, micro_batch=1, url=served.url)
    job.watch()
    assert "state FAILED" in capsys.readouterr().out
    with pytest.raises(JobNotSucceededError) as failed:
        job.result()
    message = str(failed.value)
    assert "FAILED (user_error)" in message
    assert 'File "<cell 7>", line 7, in train' in message and "# this very line" in message
    job.close()
