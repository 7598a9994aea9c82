"""A Ray Train program as a job: the result of Ray Train itself, also after a kill, and from its checkpoint."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ray_train_digits.py"
EPOCHS, STEPS_OF_AN_EPOCH = 8, 8


def ray_train(name: str, path: Path, *args: str, ranks: int = 2, **parts: Any) -> dict[str, Any]:
    """Return a spec that runs a Ray Train program."""
    workload = {"kind": "ray_train", "entrypoint": str(path), "args": list(args)}
    return {"name": name, "workload": workload, "layout": {"dp": ranks}, **parts}


def output(served: Server, job: Job, *, generation: int, rank: int = 0, stream: str = "stdout") -> str:
    """Return the output of a rank of a generation."""
    return "".join(served.client.logs(job.id, rank=rank, generation=generation, stream=stream))


def results(text: str) -> list[str]:
    """Return the lines of the example's output that show its result."""
    return [line for line in text.splitlines() if line.startswith(("epoch ", "parameters "))]


@pytest.fixture(scope="module")
def under_ray_train(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The example's results under Ray Train, without faults, on its own cluster, and the folder of its run."""
    folder = tmp_path_factory.mktemp("ray")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"OMP_NUM_THREADS": "1", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_ADDRESS": "local"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--folder", str(folder), "--epochs", str(EPOCHS)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    lines = results(done.stdout)
    assert len(lines) == 2, done.stdout
    return lines, folder


@pytest.mark.slow
def test_the_example_loses_a_rank_and_ends_as_under_ray_train(
    served: Server, tmp_path: Path, under_ray_train: tuple[list[str], Path]
) -> None:
    expected, _ = under_ray_train
    fault = {"at": {"rank": 1, "step": 34, "phase": "optimizer"}, "do": "sigkill"}
    arguments = ("--folder", str(tmp_path / "runs"), "--epochs", str(EPOCHS))
    allowed = {"budgets": {"user_error": 3}}
    job = served.run(ray_train("ray-train", EXAMPLE, *arguments, faults=[fault], recovery=allowed))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert (job.step, job.generation) == (EPOCHS * STEPS_OF_AN_EPOCH, 2)
    (incident,) = job.incidents
    # The newest checkpoint is that of the fourth epoch, step 32.
    assert (incident.reason, incident.rank, incident.recovery_action) == ("rank_exit", 1, "respawn")
    assert incident.at_step is not None and incident.steps_lost == incident.at_step - 32
    for rank in range(2):
        assert f"rank {rank} resumes after epoch 4" in output(served, job, generation=2, rank=rank)
    assert results(output(served, job, generation=2)) == expected
    assert not results(output(served, job, generation=2, rank=1)), "the program runs once, as a driver does"
    assert "recovery.budgets" not in output(served, job, generation=2, stream="stderr")
    rows = list(served.client.steps(job.id))
    assert [row.step for row in rows] == list(range(1, EPOCHS * STEPS_OF_AN_EPOCH + 1))
    reported = {row.step: (row.extra["epoch"], row.loss) for row in rows if row.extra}
    assert list(reported) == [STEPS_OF_AN_EPOCH * epoch for epoch in range(1, EPOCHS + 1)]
    assert expected[0] == f"epoch {EPOCHS} loss {reported[EPOCHS * STEPS_OF_AN_EPOCH][1]:.6f}"
    assert job.loss == reported[EPOCHS * STEPS_OF_AN_EPOCH][1]
    assert not served.client.checkpoints(job.id)


@pytest.mark.slow
def test_a_run_started_under_ray_train_continues_here(served: Server, under_ray_train: tuple[list[str], Path]) -> None:
    _, folder = under_ray_train
    job = served.run(ray_train("goes-on", EXAMPLE, "--folder", str(folder), "--epochs", str(EPOCHS + 1)))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert f"rank 1 resumes after epoch {EPOCHS}" in output(served, job, generation=1, rank=1)
    assert results(output(served, job, generation=1))[0].startswith(f"epoch {EPOCHS + 1} ")
    assert "recovery.budgets.user_error" in output(served, job, generation=1, stream="stderr")


def test_a_size_that_the_program_did_not_request_is_wrong_input(served: Server, tmp_path: Path) -> None:
    job = served.run(ray_train("too-many", EXAMPLE, "--folder", str(tmp_path), ranks=4), within_s=90)
    assert (job.state, job.reason, job.generation) == ("FAILED", "invalid_input", 1)
    assert "ScalingConfig(num_workers=2), but the job runs on 4 ranks" in job.message


def test_run_reads_the_size_from_the_program(served: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regroup.api.cli", "run", "--server", served.url, "--ray-train", str(EXAMPLE)]
    command += ["--folder", str(tmp_path / "runs"), "--epochs", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = served.client.get(next(iter(served.client.jobs())).id).spec
    assert (spec.layout.dp.target, spec.recovery.budgets.user_error, spec.workload.kind) == (2, 3, "ray_train")


def test_a_check_compares_a_restart_from_the_checkpoint_of_the_program(served: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regroup.api.cli", "run", "--server", served.url, "--check", "--ray-train"]
    command += [str(EXAMPLE), "--folder", str(tmp_path / "runs"), "--epochs", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("EQUAL: a restart from the program's checkpoint changes nothing: step"), done.stdout
