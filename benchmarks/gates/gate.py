"""A gate that lets one arm at a time run a block of steps. A waiting rank uses no CPU, because it blocks in `recv`.

All arms stay alive and warm, and keep their process groups. The server sends `GO n` to each rank of one arm. The rank
runs n steps and answers `DONE`. The ranks of the other arms do not run until `DONE`.
"""

import itertools
import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_GO, _DONE = b"GO", b"DONE"


class GateServer:
    """The benchmark's end: the ranks of all arms connect to `path`, then `run_block` opens the gate for one arm."""

    def __init__(self, path: Path, patience_s: float = 120.0) -> None:
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.settimeout(patience_s)
        self._patience_s = patience_s
        self._arms: dict[str, dict[int, socket.socket]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def admit(self, arm: str, ranks: int) -> None:
        """Wait until all `ranks` of `arm` are at the gate.

        Raises:
            TimeoutError: a rank did not connect in time.
        """
        while len(self._arms.get(arm, {})) < ranks:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                raise TimeoutError(f"arm {arm}: {len(self._arms.get(arm, {}))} of {ranks} ranks at the gate") from None
            connection.settimeout(self._patience_s)
            name, _, rank = connection.recv(256).decode().rpartition(" ")
            self._arms.setdefault(name, {})[int(rank)] = connection

    def run_block(self, arm: str, steps: int) -> float:
        """Let `arm` run `steps` steps and return the seconds from the first GO to the last DONE.

        Raises:
            ConnectionError: a rank of the arm disconnected.
        """
        connections = self._arms[arm]
        start = time.perf_counter()
        for rank, connection in connections.items():
            try:
                connection.send(b"%s %d" % (_GO, steps))
            except BrokenPipeError:
                raise ConnectionError(f"arm {arm}: rank {rank} left the gate") from None
        for rank, connection in connections.items():
            if connection.recv(256) != _DONE:
                raise ConnectionError(f"arm {arm}: rank {rank} left the gate in the middle of a block")
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the gate's connections: waiting ranks read end-of-file and continue without a gate."""
        for connections in self._arms.values():
            for connection in connections.values():
                connection.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)


class GateClient:
    """A rank's end: call `wait` before the first step, then `step_done` after each step."""

    def __init__(self, path: str, arm: str, rank: int) -> None:
        self._connection: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(path)
        self._connection.send(f"{arm} {rank}".encode())
        self._left = 0

    def wait(self) -> bool:
        """Block until the gate opens for this arm; return False after the end of the benchmark."""
        if self._connection is None:
            return False
        message = self._connection.recv(256)
        if not message:
            self.close()
            return False
        self._left = int(message.removeprefix(_GO))
        return True

    def step_done(self) -> bool:
        """Count a step. At the end of the block, report it and wait for the next block.

        Return False after the end of the benchmark.
        """
        if self._connection is None:
            return False
        self._left -= 1
        if self._left > 0:
            return True
        self._connection.send(_DONE)
        return self.wait()

    def close(self) -> None:
        """Disconnect from the gate; the rank continues without it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rounds(arms: Sequence[str], count: int, shuffle_seed: int) -> list[list[str]]:
    """Return `count` rounds of all arms, in orders that put no arm systematically after another."""
    orders = [list(order) for order in itertools.permutations(arms)]
    draw = random.Random(shuffle_seed)
    plan: list[list[str]] = []
    while len(plan) < count:
        draw.shuffle(orders)
        plan += [list(order) for order in orders]
    return plan[:count]
