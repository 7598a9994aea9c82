"""A kill in any phase, of any process: the result is bitwise that of the undisturbed run, and nothing remains."""

import json
import os
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.checks.job_leaks import nothing_left_by_jobs
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, agent_of, assert_same_result, called, eventually

Spec = Callable[..., dict[str, Any]]
NO_MIRROR = {"mirror": "off"}


def fault(rank: int, step: int, phase: str = "forward", do: str = "sigkill") -> dict[str, Any]:
    return {"at": {"rank": rank, "step": step, "phase": phase}, "do": do}


@pytest.fixture(scope="module")
def warm(served: Server, spec: Spec, control: Job) -> None:
    """Run a whole job with an incident first, so that the server has opened what it opens only once."""
    assert served.run(spec("warm", steps=4, faults=[fault(1, 2)])).state == "SUCCEEDED"


@pytest.fixture(autouse=True)
def nothing_left(served: Server, warm: None) -> Iterator[None]:
    """Check that each test's jobs leave nothing behind."""
    with nothing_left_by_jobs(served):
        yield


def test_a_kill_in_every_phase(served: Server, spec: Spec, control: Job) -> None:
    faults = [
        fault(1, 3, "forward"),
        fault(2, 6, "backward"),
        fault(3, 9, "optimizer"),
        fault(1, 12, "snapshot"),
        fault(2, 16, "checkpoint"),
    ]
    job = served.run(spec("phases", faults=faults))
    assert_same_result(served, job, control)
    assert len(job.incidents) == len(faults)
    assert {incident.recovery_action for incident in job.incidents} == {"respawn"}
    assert all(incident.steps_lost is not None and incident.steps_lost <= 1 for incident in job.incidents)
    assert [incident.rank for incident in job.incidents] == [1, 2, 3, 1, 2]
    assert job.generation == len(faults) + 1


def test_kills_of_rank_0_of_two_ranks_of_the_store_and_of_the_zygote(served: Server, spec: Spec, control: Job) -> None:
    faults = [fault(0, 4), fault(1, 8), fault(2, 8), fault(3, 12, do="kill_store"), fault(2, 16, do="kill_zygote")]
    job = served.run(spec("parts", faults=faults))
    assert_same_result(served, job, control)
    reasons = [incident.reason for incident in job.incidents]
    assert reasons[0] == "rank_exit" and "store_exit" in reasons and "zygote_exit" in reasons
    assert all(incident.steps_lost is not None and incident.steps_lost <= 1 for incident in job.incidents)


def test_a_saver_dies_and_another_writes_the_checkpoint(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 12)
    submitted = served.client.submit(spec("saver", faults=[fault(1, 7, do="kill_saver")], **gates.parts))
    eventually(lambda: steps_saved(served, submitted) == [8], 120)
    gates.open(12)
    job = served.client.wait(submitted.id, timeout_s=240)
    assert_same_result(served, job, control)
    assert not job.incidents
    notes = [event.data["kind"] for event in served.client.events(job.id) if event.type == "note"]
    assert notes.count("saver_died") == 1 and "checkpoint_failed" not in notes
    assert steps_saved(served, job) == [8, 16, 24]


def steps_saved(served: Server, job: Job) -> list[int]:
    return [saved.step for saved in served.client.checkpoints(job.id)]


def test_an_agent_dies_and_the_job_resumes_from_disk(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 11)
    job = served.client.submit(spec("agent", snapshot=NO_MIRROR, faults=[fault(2, 12, do="kill_agent")], **gates.parts))
    eventually(lambda: [saved.step for saved in served.client.checkpoints(job.id)] == [8], 120)
    gates.open(11)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert [formed.start_step for formed in served.client.generations(job.id)] == [0, 8]
    (incident,) = done.incidents
    assert (incident.reason, incident.recovery_action) == ("agent_lost", "disk")
    assert incident.steps_lost is not None and 0 < incident.steps_lost <= 8


@pytest.mark.slow
def test_steps_of_a_checkpoint_are_recorded_even_if_the_reporting_agent_dies(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    """Step rows travel with the agent's heartbeat. The checkpoint must not overtake them."""
    gates = Gates(tmp_path, 9)
    job = served.client.submit(spec("row-teller", snapshot=NO_MIRROR, **gates.parts))
    eventually(lambda: [saved.step for saved in served.client.checkpoints(job.id)] == [8], 120, every_s=0.01)
    os.kill(agent_of(gates.ranks_at(9)[0]), signal.SIGKILL)
    gates.open(9)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert [formed.start_step for formed in served.client.generations(job.id)] == [0, 8]


def test_ranks_with_orphans_leave_nothing(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    """Kill ranks with a child and a process that called setsid, as data loaders have. Both hold the rank's sockets."""
    title = f"orphan-{uuid.uuid4().hex}"
    (tmp_path / "orphans.py").write_text(ORPHANS)
    env = {"PYTHONPATH": str(tmp_path), "ORPHAN": title}
    job = served.client.submit(spec("orphans", env=env, preload=["orphans"], faults=[fault(1, 10)]))
    eventually(lambda: served.client.get(job.id).step >= 2)
    assert len(called(title)) >= 8, "two per rank, four ranks"
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert len(done.incidents) == 1
    eventually(lambda: not called(title), 15)


ORPHANS = """
import os, sys

def spawn():
    for detach in (False, True):
        if os.fork() == 0:
            if detach:
                os.setsid()
            os.execv(sys.executable, [os.environ["ORPHAN"], "-c", "import time; time.sleep(1000)"])

def once():
    if os.environ.setdefault("SPAWNED", str(os.getpid())) == str(os.getpid()):
        spawn()

os.register_at_fork(after_in_child=once)
"""


def test_ranks_with_data_loader_workers_leave_nothing(served: Server, spec: Spec, control: Job) -> None:
    """Kill ranks that have two loader workers and a process that called setsid. All hold the rank's sockets.

    These would keep the dead rank's connections open, and its neighbors would wait, unless all of them are killed.
    """
    with tempfile.TemporaryDirectory(prefix="loaders-") as folder:  # a short path: torch creates unix sockets there
        Path(folder, "loaders.py").write_text(LOADERS)
        env = {"PYTHONPATH": folder, "NOTES": folder, "TMPDIR": folder}
        job = served.run(spec("loaders", env=env, preload=["loaders"], faults=[fault(1, 10), fault(0, 15)]))
        notes = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    assert_same_result(served, job, control)
    assert [incident.reason for incident in job.incidents] == ["rank_exit"] * 2
    assert sorted(note["rank"] for note in notes) == sorted([0, 1, 2, 3] * 3)
    children = [tuple(child) for note in notes for child in note["children"]]
    assert len(set(children)) == 3 * len(notes), "two workers and a detached process for each rank of each generation"
    assert [note["of_former_generations"] for note in notes] == [[]] * len(notes)
    eventually(lambda: not [child for child in children if start_time(child[0]) == child[1]], 15)


def start_time(pid: int) -> str:
    """Return the start time of a process, which identifies it together with its pid.

    It is empty if the process does not exist, or is a zombie, which holds no socket.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


# A loader with its own generator does not change the job's random numbers.
LOADERS = """
import json, os, signal
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
from regroup.workers.rank.context import Context

class Numbers(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        return torch.full((1024,), index)

def start_time(pid):
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]

def begin(context):
    folder = Path(os.environ["NOTES"])
    former = [child for path in folder.glob(f"{context.generation - 1}-*.json")
              for child in json.loads(path.read_text())["children"]]
    alive = [child for child in former if start_time(child[0]) == child[1]]
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork",
                        generator=torch.Generator())
    context.batches = enumerate(loader)
    read(context)
    workers = [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]
    helper = os.fork()
    if helper == 0:
        os.setsid()
        while True:
            signal.pause()
    note = {"rank": context.rank, "of_former_generations": alive,
            "children": [[pid, start_time(pid)] for pid in (*workers, helper)]}
    draft = folder / f"{os.getpid()}.draft"
    draft.write_text(json.dumps(note))
    draft.rename(folder / f"{context.generation}-{context.rank}.json")

def read(context):
    number, batch = next(context.batches)
    assert batch[:, 0].tolist() == list(range(4 * number, 4 * number + 4))

restore, commit = Context.restore, Context.commit

def restore_and_begin(self):
    step = restore(self)
    begin(self)
    return step

def read_and_commit(self, *args, **fields):
    read(self)
    return commit(self, *args, **fields)

Context.restore, Context.commit = restore_and_begin, read_and_commit
"""


def test_an_exception_in_training_code_fails_at_once_with_one_traceback(served: Server, spec: Spec) -> None:
    job = served.run(spec("raises", faults=[fault(1, 3, do="raise")]))
    assert (job.state, job.reason) == ("FAILED", "user_error")
    assert job.error is not None and job.error["rank"] == 1 and "Traceback" in job.error["traceback"]
    assert job.generation == 1
