"""Two agents at the ends of a link with 1 Gbit/s and 20 ms: heartbeats arrive, and recovery goes first."""

import contextlib
import itertools
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

import pytest

from regroup.service.supervisor.gang.liveness import LOST_S
from tests.support.machines.network_link import Wire

pytestmark = pytest.mark.wires

ADDRESSES = ("10.78.0.1", "10.78.0.2")
GIGABIT_BYTES_PER_S = 125e6
DELAY_S = 0.02
STATE_BYTES, SMALL_BYTES = 192 << 20, 48 << 20


class End:
    """The process at one end."""

    def __init__(self, namespace: str, address: str) -> None:
        module = "tests.workers.agent.transfer.slow_network"
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-m", module, address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._number, self._waiting = 0, dict[int, Queue[dict[str, Any]]]()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def start(self, do: str, **arguments: Any) -> "Queue[dict[str, Any]]":
        """Send an order and return the queue that gets its answer."""
        self._number += 1
        answer = self._waiting[self._number] = Queue[dict[str, Any]]()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": self._number, "do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return answer

    def do(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send an order and return its answer."""
        return self.start(do, **arguments).get(timeout=60)

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._reading.join(20)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._waiting[answer.pop("number")].put(answer)


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Two agents that know each other, with a shard each."""
    names = [f"rg-{secrets.token_hex(4)}-{number}" for number in range(2)]
    with contextlib.ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
        wire = Wire((names[0], "eth0"), (names[1], "eth0"), dict(os.environ))
        stack.callback(wire.close)
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        wire.worsen(delay_s=DELAY_S, bytes_per_s=GIGABIT_BYTES_PER_S)
        made = [End(name, address) for name, address in zip(names, ADDRESSES, strict=True)]
        for end in made:
            stack.callback(end.end)
        yield made[0], made[1]


def test_mirrors_in_both_directions_delay_no_heartbeat(ends: tuple[End, End]) -> None:
    places = [end.do("listen") for end in ends]
    for rank, end in enumerate(ends):
        end.do("add", rank=rank, nbytes=STATE_BYTES)
        end.do("beat", heartbeats=places[1 - rank]["heartbeats"])
    mirrors = [end.start("put", transfers=places[1 - rank]["transfers"], rank=rank) for rank, end in enumerate(ends)]
    seconds = [mirror.get(timeout=60)["seconds"] for mirror in mirrors]
    assert all(took > 0.8 * STATE_BYTES / GIGABIT_BYTES_PER_S for took in seconds), "the link has a rate"
    for end in ends:
        arrived = end.do("beats")
        times = [*arrived["times"], arrived["now"]]
        assert len(times) > 3
        longest = max(after - before for before, after in itertools.pairwise(times))
        assert longest < LOST_S / 2, "a heartbeat is sent every 0.5 s"


def test_a_recovery_goes_before_a_mirror(ends: tuple[End, End]) -> None:
    here, there = ends
    source, target = here.do("listen")["transfers"], there.do("listen")["transfers"]
    here.do("add", rank=0, nbytes=STATE_BYTES)
    here.do("add", rank=1, nbytes=SMALL_BYTES)
    alone = there.do("get", transfers=source, rank=1)["seconds"]
    mirror = here.start("put", transfers=target, rank=0)
    with pytest.raises(Empty):
        mirror.get(timeout=0.5)
    recovery = there.do("get", transfers=source, rank=1)
    mirrored = mirror.get(timeout=60)
    assert recovery["seconds"] < 1.5 * alone + 0.3, "chunks that were sent before take a moment"
    assert mirrored["seconds"] > STATE_BYTES / GIGABIT_BYTES_PER_S + 0.8 * recovery["seconds"], "the mirror waited"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
