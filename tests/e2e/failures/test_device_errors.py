"""A device runs out of memory, or its context fails. New processes retry once; twice at a step ends the job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.servers.regroup_server import Server

Spec = Callable[..., dict[str, Any]]
_DEVICE = frozenset({"device_error"})
ONCE, TWICE = Expected(incidents=(_DEVICE,)), Expected("FAILED", "device_error", (_DEVICE,) * 2)
AT = 5
OUT_OF_MEMORY = """
def break_device():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""
"""As torch reports it, on machines without a device."""
REALLY_OUT_OF_MEMORY = """
def break_device():
    torch.empty(1 << 50, device="cuda")
"""
ASSERTED = """
def break_device():
    torch.zeros(1, device="cuda")[torch.tensor([7], device="cuda")]
    torch.cuda.synchronize()
"""
_BREAKS = """
import os
import torch
from regroup.workers.rank.context import Context

commit = Context.commit

def broken(self, step, *args, **fields):
    if step == AT and self.rank == 1 % self.world_size and self.generation <= int(os.environ["BREAKS"]):
        break_device()
    return commit(self, step, *args, **fields)

Context.commit = broken
"""


def breaking_device(folder: Path, how: str, generations: int) -> dict[str, Any]:
    """Return parts of a spec: in this number of generations, a rank breaks its device before it commits step `AT`."""
    (folder / "breaks.py").write_text(how + _BREAKS.replace("AT", str(AT)))
    return {"env": {"PYTHONPATH": str(folder), "BREAKS": str(generations)}, "preload": ["breaks"]}


def test_one_failure_restarts_the_ranks(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    job = served.client.submit(spec("broken-once", **breaking_device(tmp_path, OUT_OF_MEMORY, 1)))
    with check_all_invariants(served, job, ONCE, control):
        served.client.wait(job.id, timeout_s=120)


def test_twice_at_a_step_ends_the_job_with_advice(served: Server, spec: Spec, tmp_path: Path) -> None:
    job = served.client.submit(spec("broken", **breaking_device(tmp_path, OUT_OF_MEMORY, 9)))
    with check_all_invariants(served, job, TWICE):
        done = served.client.wait(job.id, timeout_s=120)
    assert "OutOfMemoryError: CUDA out of memory" in done.message and "The same failure occurred before" in done.message
    assert done.error is not None and done.error["rank"] == 1
    assert "micro_batch" in " ".join(served.client.why(job.id).advice)


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one node that has one GPU."""
    state = tmp_path_factory.mktemp("gpu") / "state"
    server = Server(state, nodes=1, environment={"REGROUP_LOCAL_GPUS_PER_NODE": "1"})
    server.start()
    yield server
    server.down()


@pytest.mark.cuda
@pytest.mark.parametrize("how", [REALLY_OUT_OF_MEMORY, ASSERTED])
def test_a_real_device(how: str, on_gpu: Server, spec: Spec, tmp_path: Path) -> None:
    parts: dict[str, Any] = {"layout": {"dp": 1}, "resources": {"device": "cuda"}}
    calm = on_gpu.run(spec("calm", **parts))
    job = on_gpu.client.submit(spec("broken", **parts, **breaking_device(tmp_path, how, 1)))
    with check_all_invariants(on_gpu, job, ONCE, calm):
        on_gpu.client.wait(job.id, timeout_s=240)
