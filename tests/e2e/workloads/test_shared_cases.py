"""The functions and scripts of `shared/cases`, as its README runs them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.inputs.shared_cases import shared_cases
from tests.support.jobs.script_jobs import script
from tests.support.servers.regroup_server import Server, eventually

pytestmark = pytest.mark.slow

FUNCTIONS = [
    "f01_extra_state",
    "f02_add_param_group",
    "f03_optimizer_global_state",
    "f04_local_sgd",
    "f05_sparse_buffer",
    "f07b_odd_tensors_no_expand",
    "f08_batchnorm_ddp",
    "f09_lora_frozen_fsdp",
    "f10_lbfgs",
    "f12_param_group_membership",
]
KILL = {"at": {"rank": 1, "step": 6, "phase": "optimizer"}, "do": "sigkill"}


def function(module: str, faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the spec of `functions/job.yaml` for a module."""
    return {
        "name": f"{module.partition('_')[0]}-{'killed' if faults else 'whole'}",
        "workload": {"kind": "function", "function": f"{module}:train"},
        "code": {"working_dir": str(shared_cases("functions"))},
        "training": {"steps": 8, "global_batch": 8, "micro_batch": 4},
        "layout": {"dp": 2, "data_parallel": "ddp"},
        "faults": faults,
    }


def last_lines(served: Server, job: Job) -> list[str]:
    """Return the `END` line of each rank. Ranks may differ, as after local SGD."""
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    newest = max(formed.number for formed in served.client.generations(job.id))
    logs = ["".join(served.client.logs(job.id, rank=rank, generation=newest)) for rank in range(2)]
    ends = [[line for line in log.splitlines() if line.startswith("END")] for log in logs]
    assert [len(lines) for lines in ends] == [1, 1], logs
    return [lines[0] for lines in ends]


def test_no_function_is_missing_here() -> None:
    assert sorted(path.stem for path in shared_cases("functions").glob("f*.py")) == FUNCTIONS


@pytest.mark.parametrize("module", FUNCTIONS)
def test_a_killed_rank_changes_no_result(served: Server, module: str) -> None:
    whole = served.run(function(module, []))
    killed = served.run(function(module, [KILL]))
    assert last_lines(served, killed) == last_lines(served, whole)
    restores = [formed.restore["kind"] for formed in served.client.generations(killed.id)]
    assert restores == ["none", "memory"], "the fault occurred, and cost no step"


def test_ranks_without_a_seed_draw_different_numbers_in_each_run(served: Server) -> None:
    drawn: list[str] = []
    for name in ("unseeded", "unseeded-again"):
        job = served.run(script(name, shared_cases("scripts") / "s01b_unseeded.py", ranks=2))
        assert job.state == "SUCCEEDED", (job.reason, job.message)
        for rank in range(2):
            line = next(line for line in served.client.logs(job.id, rank=rank) if line.startswith(f"R{rank} "))
            drawn += line.split(maxsplit=1)[1].partition(" dropout=")[::2]
    seeds, numbers = drawn[::2], drawn[1::2]
    assert len(set(seeds)) == 4 and len(set(numbers)) == 4, drawn


@pytest.fixture
def saving(served: Server, tmp_path: Path) -> Iterator[tuple[Job, Path]]:
    """A job of the script that saves for 3 s on SIGTERM, and the folder that it saves to."""
    job = served.client.submit(script("saving", shared_cases("scripts") / "s02_sigterm.py", str(tmp_path), ranks=2))
    eventually(lambda: len(list(tmp_path.glob("up-*"))) == 2)
    yield job, tmp_path
    served.client.cancel(job.id)
    served.client.wait(job.id, timeout_s=60)


def test_a_cancelled_script_gets_the_time_to_save(served: Server, saving: tuple[Job, Path]) -> None:
    job, folder = saving
    served.client.cancel(job.id)
    assert served.client.wait(job.id, timeout_s=60).state == "CANCELLED"
    assert sorted(path.name for path in folder.glob("saved-*")) == ["saved-0", "saved-1"]


def test_a_suspended_script_gets_the_time_to_save(served: Server, saving: tuple[Job, Path]) -> None:
    job, folder = saving
    served.client.suspend(job.id)
    assert served.client.wait_for_suspend(job.id, timeout_s=60).state == "SUSPENDED"
    assert sorted(path.name for path in folder.glob("saved-*")) == ["saved-0", "saved-1"]
