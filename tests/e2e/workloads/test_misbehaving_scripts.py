"""Scripts that misbehave. Each ends as the guide describes, leaves nothing, and does not disturb the server."""

import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.checks.job_leaks import nothing_named_by_jobs
from tests.support.machines.small_disk import needs_root, small_disk
from tests.support.servers.regroup_server import Server, called, eventually

GROWTH_KIB = 90 * 1024
"""Limit of growth, less than the output. A new actor of Ray grows by about 60 MiB while it imports."""


@pytest.fixture(autouse=True)
def nothing_left(served: Server) -> Iterator[None]:
    with nothing_named_by_jobs(served):
        yield


def script(name: str, path: Path, *args: str, ranks: int = 2, **parts: Any) -> dict[str, Any]:
    workload = {"kind": "script", "entrypoint": str(path), "args": list(args)}
    return {"name": name, "workload": workload, "layout": {"dp": ranks}, **parts}


def written(folder: Path, source: str) -> Path:
    path = folder / "train.py"
    path.write_text(source)
    return path


class Disturbed:
    """Response times of the server during a job, and memory growth of the server and the platform's actors."""

    def __init__(self, served: Server) -> None:
        self._served = served
        self._over = threading.Event()
        self.requests = 0
        self.slowest_s = 0.0
        self._first_kib: dict[int, int] = {}
        self._most_kib: dict[int, int] = {}

    @contextmanager
    def by(self, job: Job) -> Iterator[None]:
        """Measure during the block."""
        measurement = threading.Thread(target=self._measure, args=(job.id,))
        measurement.start()
        try:
            yield
        finally:
            self._over.set()
            measurement.join()

    @property
    def grown_kib(self) -> int:
        """Largest growth of one of the processes."""
        return max(self._most_kib[pid] - first for pid, first in self._first_kib.items())

    def _measure(self, job: str) -> None:
        while not self._over.wait(0.1):
            for way in (self._alive, lambda: self._served.client.get(job)):
                began = time.monotonic()
                way()
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.requests += 1
            for pid in (self._served.pid, *self._served.processes("ray::")):
                with suppress(OSError):
                    kib = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
                    self._first_kib.setdefault(pid, kib)
                    self._most_kib[pid] = max(kib, self._most_kib.get(pid, 0))

    def _alive(self) -> None:
        urllib.request.urlopen(f"{self._served.url}/livez", timeout=30).close()


SPAWNS = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):  # defined here: a spawned worker imports this file again
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((4,), float(index))

def main():
    torch.multiprocessing.set_start_method("spawn")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.5)
    loader = DataLoader(Numbers(), batch_size=8, num_workers=1)
    note = Path(sys.argv[1], f"{os.environ['TORCHELASTIC_RESTART_COUNT']}-{dist.get_rank()}")
    for batch in loader:
        note.write_text(" ".join(str(process.pid) for process in torch.multiprocessing.active_children()))
        model(batch).mean().backward()
        optimizer.step()
    print("read", len(loader))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_spawned_data_loader_workers_run_and_end_with_their_rank(served: Server, tmp_path: Path) -> None:
    fault = {"at": {"rank": 1, "step": 4, "phase": "optimizer"}, "do": "sigkill"}
    job = served.run(script("spawns", written(tmp_path, SPAWNS), str(tmp_path), faults=[fault]), 180)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert [(incident.reason, incident.rank) for incident in job.incidents] == [("rank_exit", 1)]
    assert "".join(served.client.logs(job.id, rank=1, generation=2)) == "read 8\n"
    workers = [path.read_text().split() for path in tmp_path.glob("[01]-[01]")]
    assert [len(pids) for pids in workers] == [1, 1, 1, 1]


LEAKS = """
import os, subprocess, sys

def child(name):
    return [name, "-c", "import time; time.sleep(1000)"]

def daemon(name, keeps_output):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            if not keeps_output:
                for fd in range(3):
                    os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            os.execv(sys.executable, child(name))
        os._exit(0)
    os.wait()

title, how = sys.argv[1:]
subprocess.Popen(child(title), executable=sys.executable)
subprocess.Popen(child(title), executable=sys.executable, start_new_session=True)
daemon(title, True)
daemon(title, False)
if how == "raises":
    raise ValueError("bad")
"""


@pytest.mark.parametrize(("how", "state"), [("returns", "SUCCEEDED"), ("raises", "FAILED")])
def test_children_sessions_and_daemons_are_ended(served: Server, tmp_path: Path, how: str, state: str) -> None:
    title = f"leaked-{uuid.uuid4().hex}"
    job = served.run(script(f"leaks-{how}", written(tmp_path, LEAKS), title, how), 90)
    assert job.state == state, (job.reason, job.message, job.error)
    eventually(lambda: not called(title), 15)


FILLS = """
import os
with open("state.bin", "wb") as file:
    for _ in range(64):
        file.write(os.urandom(2**20))
"""


@needs_root
def test_a_full_disk_is_retried_and_then_named(served: Server, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        job = served.run(script("fills", written(disk, FILLS), ranks=1, recovery={"budgets": {"io_error": 1}}), 90)
    assert (job.state, job.reason, job.generation) == ("FAILED", "budget_exhausted", 2)
    assert "rank 0: OSError: [Errno 28] No space left on device" in job.message
    assert [incident.reason for incident in job.incidents] == ["io_error"] * 2


PRINTS = """
import sys, time
line = "x" * 99
for number in range(100_000):  # ten million bytes
    print(line)
sys.stdout.flush()
block = (line + chr(10)) * 10_000
for _ in range(90):
    sys.stdout.write(block)
print("the end")
"""


@pytest.mark.slow
def test_a_hundred_megabytes_of_output_do_not_disturb_the_server(served: Server, tmp_path: Path) -> None:
    disturbed = Disturbed(served)
    job = served.client.submit(script("prints", written(tmp_path, PRINTS), ranks=1))
    with disturbed.by(job):
        text = "".join(served.client.logs(job.id, rank=0, follow=True))
        done = served.client.wait(job.id, timeout_s=120)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert disturbed.requests > 3 and disturbed.slowest_s < 1, disturbed.slowest_s
    assert disturbed.grown_kib < GROWTH_KIB
    assert text.startswith("x" * 99 + "\n") and text.endswith("the end\n")
    archived = "".join(served.client.logs(job.id, rank=0, generation=1))
    assert archived.endswith("the end\n") and "\n[31.3 MiB of output are not kept]\n" in archived
    assert 64 * 2**20 <= len(archived) < 65 * 2**20
    print(f"slowest answer {disturbed.slowest_s:.3f} s of {disturbed.requests}; {disturbed.grown_kib} KiB more at most")
