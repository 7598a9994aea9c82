"""A process that is connected to a cluster stays idle after the head of the cluster has died."""

import inspect
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ray._private import worker as ray_worker

from regroup.service.local import ray_cluster
from regroup.service.ray_adapter.error_messages import PatientSubscriber
from regroup.service.settings import Settings

CONNECTED = """
import asyncio, os, sys, time
from regroup.service.ray_adapter.cluster import RayCluster

async def main():
    await RayCluster.connect(sys.argv[1], None)
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    time.sleep(1.0)  # the head is gone: connections break
    began, used = time.monotonic(), time.process_time()
    time.sleep(3.0)
    cores = (time.process_time() - used) / (time.monotonic() - began)
    print("", f"cores in use: {cores}", sep=os.linesep, flush=True)
    os._exit(0)

asyncio.run(main())
"""


class Subscriber:
    """A subscriber whose polls return at once."""

    polls = 0
    is_closed = False

    def subscribe(self) -> None:
        pass

    def poll(self, timeout: float | None = None) -> tuple[Any, Any]:
        self.polls += 1
        return None, {"error_message": "lost"} if self.polls == 1 else None

    def close(self) -> None:
        self.is_closed = True


def test_a_process_is_idle_after_the_head_has_died(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", local_nodes=0, ray_dashboard=False)
    cluster = ray_cluster.start(settings)
    environment = {**os.environ, **ray_cluster.ray_environment(settings.ray_token_path)}
    command = [sys.executable, "-c", CONNECTED, cluster.address]
    connected = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    assert connected.stdout is not None and connected.stdin is not None
    try:
        # Ray prints messages of its daemons to the same stream.
        assert any(line == "connected\n" for line in connected.stdout)
        ray_cluster.stop(settings.state_dir)
        connected.stdin.write("the head is gone\n")
        connected.stdin.flush()
        measured = next(line for line in connected.stdout if line.startswith("cores in use: "))
        assert float(measured.removeprefix("cores in use: ")) < 0.3, measured
    finally:
        connected.kill()
        connected.wait()
        ray_cluster.stop(settings.state_dir)


def test_the_next_message_does_not_wait_and_nothing_pauses() -> None:
    patient = PatientSubscriber(inner := Subscriber(), pause_s=0.2)
    began_s = time.monotonic()
    assert patient.poll()[1] == {"error_message": "lost"} and time.monotonic() - began_s < 0.2
    for _ in range(2):
        assert patient.poll() == (None, None)
    assert time.monotonic() - began_s >= 0.4
    patient.close()
    began_s = time.monotonic()
    patient.poll()
    assert inner.is_closed and time.monotonic() - began_s < 0.2


def test_the_thread_of_ray_polls_the_subscriber_of_its_worker() -> None:
    text = inspect.getsource(ray_worker.listen_error_messages)
    assert "worker.gcs_error_subscriber.poll()" in text
