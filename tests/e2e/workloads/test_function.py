"""A user's training function as a job: recovered bitwise, resumed on other layouts, refused with clear errors."""

from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server, assert_same_result

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STEPS = 24


def function(name: str, *, ranks: int = 4, steps: int = STEPS, **parts: Any) -> dict[str, Any]:
    """Return a spec of the example."""
    return {
        "name": name,
        "workload": {"kind": "function", "function": "function_fsdp:train"},
        "code": {"working_dir": str(EXAMPLES)},
        "preload": ["function_fsdp"],
        "training": {"steps": steps, "global_batch": 48, "micro_batch": 4},
        "layout": {"dp": ranks},
        "snapshot": {"every_steps": 1},
        "checkpoint": {"every_steps": 8},
        **parts,
    }


@pytest.fixture(scope="module")
def undisturbed(served: Server) -> Job:
    """The example on 2 × 2 ranks."""
    job = served.run(function("function-control"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job


def test_a_killed_rank_costs_no_step_and_the_result_is_bitwise_equal(served: Server, undisturbed: Job) -> None:
    fault = {"at": {"rank": 2, "step": 13, "phase": "optimizer"}, "do": "sigkill"}
    job = served.run(function("function-struck", faults=[fault]))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.steps_lost) == ("rank_exit", 2, 0)
    assert [formed.restore["kind"] for formed in served.client.generations(job.id)][1:] == ["memory"]
    assert_same_result(served, job, undisturbed)
    rows = list(served.client.steps(job.id))
    assert rows[-1].loss is not None and rows[0].loss is not None and rows[-1].loss < 0.8 * rows[0].loss


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_checkpoint_of_four_ranks_continues_at_another_number(served: Server, undisturbed: Job, ranks: int) -> None:
    # On three ranks the twelve micro-batches divide, but the parameters' rows do not.
    job = served.run(function(f"function-on-{ranks}", ranks=ranks, resume_from=f"{undisturbed.id}@8"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    rows, before = list(served.client.steps(job.id)), list(served.client.steps(undisturbed.id))
    assert [row.step for row in rows] == list(range(9, STEPS + 1))
    assert [row.samples_hash for row in rows] == [row.samples_hash for row in before[8:]]
    assert [row.loss for row in rows] == pytest.approx([row.loss for row in before[8:]], rel=1e-3)
    ledger = served.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert job.digest is not None and undisturbed.digest is not None
    assert job.digest.samples == undisturbed.digest.samples


def test_a_function_that_no_node_can_import_fails_with_its_name(served: Server) -> None:
    spec = function("function-nowhere", preload=[], workload={"kind": "function", "function": "no_such:train"})
    job = served.run(spec, within_s=90)
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert "no module no_such in" in job.message


def test_an_error_ends_the_job_with_a_traceback_of_the_function_only(served: Server, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(run):\n    raise ValueError('bad')\n")
    parts = {"workload": {"kind": "function", "function": "mine:train"}, "preload": []}
    job = served.run(function("function-raises", ranks=1, code={"working_dir": str(tmp_path)}, **parts), within_s=90)
    assert (job.state, job.reason) == ("FAILED", "user_error")
    assert job.error is not None
    lines = job.error["traceback"].splitlines()
    assert [Path(line.split('"')[1]).name for line in lines if line.startswith("  File")] == ["mine.py"]
