"""SIGTERM to the ranks of a local cluster. Real processes: an agent, its zygote, a rank with a helper, and a store."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regroup.service.local import processes
from regroup.service.local.processes import Process
from regroup.service.local.program_end import EndedPrograms, end_programs, find_ranks
from tests.support.servers.regroup_server import eventually

AGENT = """
import os, signal, sys, time
from pathlib import Path

folder, save_s = Path(sys.argv[1]), float(sys.argv[2])

def sleep():
    while True:
        time.sleep(0.01)

def rank():
    def save(*_):
        time.sleep(save_s)
        (folder / "saved").touch()
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
    lock = os.open(folder / "device-0.lock", os.O_RDWR | os.O_CREAT)
    if not os.fork():  # a helper, which has the lock open, too
        signal.signal(signal.SIGTERM, lambda *_: (folder / "helper").touch())
        sleep()
    (folder / "up").touch()
    sleep()

def zygote():
    os.fork() or rank()
    if not os.fork():  # a store, which ranks need while they save
        while True:
            (folder / "store").write_text(str(time.monotonic()))
            time.sleep(0.01)
    os.wait()
    (folder / "seen").touch()  # a supervisor would start other ranks

if not os.fork():
    zygote()
    os._exit(0)
sleep()
"""


class Cluster:
    """The processes of a small cluster."""

    def __init__(self, folder: Path, save_s: float) -> None:
        self.folder = folder
        self.agent = subprocess.Popen([sys.executable, "-c", AGENT, str(folder), str(save_s)])
        eventually(lambda: self.has("up") and self.has("store"), 20)
        self.members = self.find()

    def find(self) -> set[Process]:
        root = processes.find_process(self.agent.pid)
        return processes.with_descendants([root] if root is not None else [])

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def store_runs_after(self, time_s: float) -> bool:
        text = (self.folder / "store").read_text()
        return bool(text) and float(text) > time_s


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[float], Cluster]]:
    started: list[Cluster] = []

    def make(save_s: float) -> Cluster:
        started.append(Cluster(tmp_path, save_s))
        return started[-1]

    yield make
    for cluster in started:
        processes.kill(cluster.members)  # the helper of a rank that has ended has another parent
        cluster.agent.wait()


def test_a_rank_saves_while_nothing_can_start_another(start: Callable[[float], Cluster]) -> None:
    cluster = start(0.3)
    waits: list[int] = []
    began_s = time.monotonic()
    ended = end_programs(cluster.find, 20, lambda alive, left_s: waits.append(alive))
    assert ended == EndedPrograms(1, 0) and cluster.has("saved")
    assert time.monotonic() - began_s < 10 and set(waits) == {1}
    assert not cluster.has("helper"), "only the rank's own process gets the signal"
    assert not cluster.has("seen"), "the zygote is stopped"
    eventually(lambda: cluster.store_runs_after(began_s), 5)


def test_a_rank_that_does_not_end_is_left_to_the_caller(start: Callable[[float], Cluster]) -> None:
    cluster = start(60)
    assert end_programs(cluster.find, 0.2, lambda alive, left_s: None) == EndedPrograms(1, 1)
    assert len(find_ranks(cluster.find())) == 1


def test_ctrl_c_ends_the_wait(start: Callable[[float], Cluster]) -> None:
    cluster = start(60)

    def interrupt(alive: int, left_s: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    assert end_programs(cluster.find, 60, interrupt) == EndedPrograms(1, 1)


def test_a_cluster_without_ranks_is_not_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = processes.find_process(child.pid)
        assert process is not None
        assert end_programs(lambda: {process}, 5, lambda alive, left_s: None) == EndedPrograms(0, 0)
