"""A rank that is slower than the others is named while it is slow. In an even run, no rank is named."""

from pathlib import Path

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.script_jobs import script
from tests.support.servers.regroup_server import Server, eventually

UNEVEN = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(120):
    is_slow = dist.get_rank() == 1 and step < 30
    end = time.thread_time() + (0.2 if is_slow else 0.03)
    while time.thread_time() < end:
        pass
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.alone
def test_a_slow_rank_of_a_script_is_named_within_twenty_steps_and_cleared(served: Server, tmp_path: Path) -> None:
    path = tmp_path / "uneven.py"
    path.write_text(UNEVEN)
    job = served.client.submit(script("uneven", path, ranks=2, steps=120))
    eventually(lambda: any(each.type == "EvenPace" for each in served.client.get(job.id).conditions), 60)
    assert any("rank 1 on node" in advice for advice in served.client.why(job.id).advice)
    job = served.client.wait(job.id, timeout_s=90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    named, forgotten = [event for event in served.client.events(job.id) if event.type == "stragglers"]
    (slow,) = named.data["ranks"]
    assert slow["rank"] == 1 and slow["work_s"] > 2 * slow["usual_s"]
    assert forgotten.data["ranks"] == []
    twentieth = next(row for row in served.client.steps(job.id) if row.step == 20)
    assert named.time_s < twentieth.time_s


def test_no_rank_is_named_in_an_even_run(served: Server, control: Job) -> None:
    assert not [event for event in served.client.events(control.id) if event.type == "stragglers"]
