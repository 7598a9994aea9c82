"""Stacks of the ranks of a running job, requested from outside."""

import os
import signal
from collections.abc import Callable
from typing import Any

from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]


def test_all_ranks_are_shown_and_the_stopped_one_is_marked(served: Server, spec: Spec) -> None:
    job = served.client.submit(spec("stacks", steps=100000))
    eventually(lambda: served.client.get(job.id).step >= 2)
    ranks = served.client.stacks(job.id)
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert all("trainer.py" in rank.text and rank.step is not None for rank in ranks)
    os.kill(ranks[2].pid, signal.SIGSTOP)
    eventually(lambda: "is stopped" in served.client.stacks(job.id)[2].text)
    assert all("trainer.py" in rank.text for rank in served.client.stacks(job.id) if rank.rank != 2)
    served.client.cancel(job.id)
    served.client.wait(job.id, timeout_s=60)
