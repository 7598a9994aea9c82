"""A cable between two network namespaces. Tests cut it, also in one direction or between two machines only, lose or
delay packets, limit its rate, or stall TCP.

A process carries frames between two tap devices, so it needs no queueing discipline of the kernel. It needs root and
/dev/net/tun. As a program: `network_link.py SEED NETNS DEVICE NETNS DEVICE`. It reads orders as lines of JSON from
its standard input.
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from typing import Any

_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_NEW_NETWORK = 0x40000000
_FRAME_BYTES = 1 << 16
_IPV4, _TCP = b"\x08\x00", 6
_QUEUE_S = 0.1
"""Longest time that a frame waits for a link with a rate."""
_MTU = 60000
"""Few large frames: each costs a cycle of a Python loop."""


class Wire:
    """One cable. `out` is the direction from the first end to the other, `back` the opposite one."""

    def __init__(
        self, one: tuple[str, str], other: tuple[str, str], environment: dict[str, str], seed: int = 0
    ) -> None:
        """Create a cable. `one`, `other`: network namespace, and name of the device to create in it."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(seed), *one, *other], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", f"no wire between {one} and {other}"

    def cut(self, *directions: str) -> None:
        """Stop carrying frames in the named directions, `out` or `back`; in both by default."""
        self._order({name: {"loss": 1.0, "delay_s": 0.0} for name in directions or ("out", "back")})

    def worsen(self, *, loss: float = 0.0, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        """Lose this share of all frames in both directions, and delay the others by `delay_s` each way.

        With `bytes_per_s`, each direction carries no more, and frames wait in a queue of limited length.
        """
        state = {"loss": loss, "delay_s": delay_s, "bytes_per_s": bytes_per_s}
        self._order(dict.fromkeys(("out", "back"), state))

    def cut_streams(self) -> None:
        """Lose all TCP frames, carry everything else: the effect of a connection that waits to retransmit."""
        self._order({name: {"loss": 0.0, "delay_s": 0.0, "tcp_loss": 1.0} for name in ("out", "back")})

    def cut_from(self, *addresses: str) -> None:
        """Lose frames to or from these addresses, carry everything else."""
        self._order({name: {"loss": 0.0, "delay_s": 0.0, "without": addresses} for name in ("out", "back")})

    def repair(self) -> None:
        """Carry everything again, without delay."""
        self.worsen()

    def close(self) -> None:
        """Remove the cable with both devices."""
        self._process.kill()
        self._process.communicate()

    def _order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n", f"the wire did not accept {order}"


def _tap(namespace: str, device: str) -> int:
    """Create a device in a namespace, with its end of the cable."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(place, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(place)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TAP | _NO_HEADER))
    subprocess.run(["ip", "link", "set", device, "mtu", str(_MTU), "up"], check=True)
    return tap


def _carry(seed: int, one: int, other: int) -> None:
    draw = random.Random(seed)
    other_end, direction_of = {one: other, other: one}, {one: "out", other: "back"}
    state: dict[str, dict[str, Any]] = {name: {"loss": 0.0, "delay_s": 0.0} for name in ("out", "back")}
    waiting: list[tuple[float, int, int, bytes]] = []
    count, free_s = 0, {one: 0.0, other: 0.0}
    print("ready", flush=True)
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([one, other, 0], [], [], wait_s)[0]:
            if source == 0:
                line = sys.stdin.readline()
                if not line:
                    return
                state |= json.loads(line)
                print("done", flush=True)
                continue
            frame, now_is = os.read(source, _FRAME_BYTES), state[direction_of[source]]
            if (loss := _loss(frame, now_is)) and draw.random() < loss:
                continue
            sent_s = max(time.monotonic(), free_s[source])
            if rate := now_is.get("bytes_per_s", 0.0):
                if sent_s - time.monotonic() > _QUEUE_S:
                    continue  # the queue of the slow link is full: a frame is lost
                free_s[source] = sent_s = sent_s + len(frame) / rate
            count += 1
            heapq.heappush(waiting, (sent_s + now_is["delay_s"], count, other_end[source], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, sink, frame = heapq.heappop(waiting)
            try:
                os.write(sink, frame)
            except OSError:
                continue  # that end is down, or its queue is full: a frame is lost


def _loss(frame: bytes, state: dict[str, Any]) -> float:
    """Return the probability that this frame is lost."""
    if frame[12:14] != _IPV4:
        return state["loss"]
    if {socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])} & set(state.get("without", ())):
        return 1.0
    return max(state["loss"], state.get("tcp_loss", 0.0) if frame[23] == _TCP else 0.0)


if __name__ == "__main__":
    _carry(int(sys.argv[1]), _tap(*sys.argv[2:4]), _tap(*sys.argv[4:6]))
