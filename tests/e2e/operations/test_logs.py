"""A rank's output can be read while it runs, and after its agents have ended."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]

# A forked child has the zygote's output until it opens its own. Only then it prints as a rank.
TALKING = """
import os, threading, time
def talk():
    while "-rank" not in (name := os.readlink("/proc/self/fd/1")):
        time.sleep(0.01)
    print("spoken by", name.rpartition("-")[2], flush=True)
os.register_at_fork(after_in_child=lambda: threading.Thread(target=talk, daemon=True).start())
"""


def test_output_is_followed_live_and_read_again_after_the_end(served: Server, spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "talking.py").write_text(TALKING)
    parts: dict[str, Any] = {"env": {"PYTHONPATH": str(tmp_path)}, "preload": ["talking"]}
    job = served.client.submit(spec("talks", steps=100000, **parts))
    received: list[str] = []
    following = threading.Thread(target=lambda: received.extend(served.client.logs(job.id, rank=2, follow=True)))
    following.start()
    eventually(lambda: "spoken by rank2.out\n" in "".join(received))
    assert served.client.get(job.id).state in ("STARTING", "RUNNING")
    with pytest.raises(ApiError, match="rank 7"):
        list(served.client.logs(job.id, rank=7))
    served.client.cancel(job.id)
    following.join(60)
    assert not following.is_alive(), "a follower runs after the job's end"
    assert served.client.wait(job.id, timeout_s=60).state == "CANCELLED"
    eventually(lambda: not served.agents(), 30)
    assert "".join(served.client.logs(job.id, rank=2)) == "".join(received) == "spoken by rank2.out\n"
    assert "".join(served.client.logs(job.id, rank=2, follow=True)) == "spoken by rank2.out\n"
    assert list(served.client.logs(job.id, rank=2, stream="stderr", follow=True)) == [], (
        "the rank printed nothing there"
    )
    assert "".join(served.client.logs(job.id, rank=2, stream="stderr")) == ""
    with pytest.raises(ApiError, match=r"g1-rank7\.out"):
        list(served.client.logs(job.id, rank=7))


@pytest.mark.slow
def test_a_later_job_of_the_same_name_has_its_own_output(served: Server, spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "talking.py").write_text(TALKING)
    parts: dict[str, Any] = {"env": {"PYTHONPATH": str(tmp_path)}, "preload": ["talking"], "steps": 2}
    jobs = [served.run(spec("again", **parts)) for _ in range(2)]
    eventually(lambda: not served.agents(), 30)
    for job in jobs:
        assert "".join(served.client.logs(job.id, rank=1)) == "spoken by rank1.out\n"
