"""Rates of transfers between two agents on this machine, against a bare pair of sockets in the same run.

`measure(nbytes)` returns them. As a program: `python -m benchmarks.transfers.peer_rate [GIGABYTES]`.
"""

import asyncio
import contextlib
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

from regroup.workers.agent.transfer.chunk_client import Read
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.boxes import Region

_HOST = "127.0.0.1"
_KEY = ShardKey(0, 1, 1)
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class PeerRates:
    """Medians of all rounds, in bytes per second, into memory that was touched before."""

    socket_bytes_per_s: float
    """Pair of sockets: `sendall` and `recv_into`, one stream, without any check."""
    fetch_bytes_per_s: float
    """Regions of another agent's shard, verified."""
    mirror_bytes_per_s: float
    """Whole shard that another agent sends, verified and stored."""
    first_mirror_bytes_per_s: float
    """The same for the first one, whose memory must be allocated."""

    @property
    def fetch_to_socket(self) -> float:
        """Rate of a fetch, relative to the pair of sockets."""
        return self.fetch_bytes_per_s / self.socket_bytes_per_s

    @property
    def mirror_to_socket(self) -> float:
        """Rate of a mirror, relative to the pair of sockets."""
        return self.mirror_bytes_per_s / self.socket_bytes_per_s


def measure(nbytes: int, rounds: int = 5) -> PeerRates:
    """Return the rates for a shard of `nbytes`. The other agent is a process of its own."""
    return asyncio.run(_measure(nbytes, rounds))


class _Store:
    """Shards of one agent. The memory of a replaced mirror is used for the next one, as the agent does."""

    def __init__(self) -> None:
        self.shards: dict[ShardKey, tuple[int, int]] = {}

    def allocate(self, rank: int, file_bytes: int) -> int:
        for key, (fd, _) in list(self.shards.items()):
            if key.rank == rank and os.fstat(fd).st_size == file_bytes:
                del self.shards[key]
                return fd
        fd = os.memfd_create(f"shard-{rank}")
        os.posix_fallocate(fd, 0, file_bytes)
        return fd

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        self.shards[key] = (fd, size_bytes)

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        return self.shards.get(key)


async def _measure(nbytes: int, rounds: int) -> PeerRates:
    store = _Store()
    engine = TransferEngine(store)
    address = engine.open(_HOST, bind_listener(_HOST, None))
    with _touched(nbytes) as memory, _peer(nbytes, address) as peer:
        there = TransferAddress(*peer.hello["transfers"])
        shard = (await engine.indexes(there, _KEY.generation, _KEY.step, [_KEY.rank]))[_KEY.rank]
        read = Read(Region(shard.table.starts[0], nbytes), memory, Region(0, nbytes))
        sockets, fetches, mirrors = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            sockets.append(nbytes / await asyncio.to_thread(_receive_bare, peer.hello["bare"], memory))
            started = time.monotonic()
            await engine.read([there], _KEY, [read])
            fetches.append(nbytes / (time.monotonic() - started))
            mirrors.append(nbytes / await asyncio.to_thread(peer.mirror))
    await engine.close()
    for fd, _ in store.shards.values():
        os.close(fd)
    median = statistics.median
    return PeerRates(median(sockets), median(fetches), median(mirrors[1:]), mirrors[0])


@contextlib.contextmanager
def _touched(nbytes: int) -> Generator[memoryview]:
    """Return memory of a memory file, allocated and touched, like the buffer of a rank."""
    fd = os.memfd_create("target")
    os.posix_fallocate(fd, 0, nbytes)
    with mmap.mmap(fd, nbytes) as mapped, memoryview(mapped) as view:
        os.close(fd)
        for at in range(0, nbytes, mmap.PAGESIZE):
            view[at] = 1
        yield view


def _receive_bare(port: int, memory: memoryview) -> float:
    with socket.create_connection((_HOST, port)) as connection:
        at, started = 0, time.monotonic()
        while at < len(memory):
            at += connection.recv_into(memory[at : at + _PIECE_BYTES])
        return time.monotonic() - started


# ------------------------------------------------------------------------------------------------ the other agent


class _Peer:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.hello = self._line()

    def mirror(self) -> float:
        """Let the other agent send its shard here. Return the seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("put\n")
        self._process.stdin.flush()
        return float(self._line()["seconds"])

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextlib.contextmanager
def _peer(nbytes: int, address: TransferAddress) -> Generator[_Peer]:
    command = [sys.executable, "-m", "benchmarks.transfers.peer_rate", "peer", str(nbytes), json.dumps(asdict(address))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _Peer(process)
        assert process.stdin is not None
        process.stdin.close()


async def _run_peer(nbytes: int, to: TransferAddress) -> None:
    store = _Store()
    engine = TransferEngine(store)
    served = engine.open(_HOST, bind_listener(_HOST, None))
    store.put(_KEY, fd := _new_shard(nbytes), nbytes)
    listener = socket.create_server((_HOST, 0))
    threading.Thread(target=_send_bare, args=(listener, fd), daemon=True).start()
    print(
        json.dumps({"transfers": [served.host, served.port, served.token], "bare": listener.getsockname()[1]}),
        flush=True,
    )
    while await asyncio.to_thread(sys.stdin.readline):
        _, seconds = await engine.put(to, _KEY, fd, nbytes)
        print(json.dumps({"seconds": seconds}), flush=True)
    await engine.close()


def _new_shard(nbytes: int) -> int:
    plan = BufferLayout((Entry("state", "uint8", (nbytes,), (0,), (nbytes,), nbytes),))
    fd = os.memfd_create("shard")
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        buffer.begin(plan, {}, generation=_KEY.generation, step=_KEY.step, rank=0, world_size=1, layout_hash="0" * 16)
        piece = os.urandom(1 << 20)
        with buffer.view(plan.entries[0]) as view:
            for at in range(0, nbytes, len(piece)):
                view[at : at + len(piece)] = piece[: nbytes - at]
        buffer.commit()
    return fd


def _send_bare(listener: socket.socket, fd: int) -> None:
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                for at in range(0, size, _PIECE_BYTES):
                    connection.sendall(view[at : at + _PIECE_BYTES])


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        asyncio.run(_run_peer(int(sys.argv[2]), TransferAddress(**json.loads(sys.argv[3]))))
    else:
        rates = measure(int(float(sys.argv[1] if len(sys.argv) > 1 else "1") * 1e9))
        ratios = {"fetch_to_socket": rates.fetch_to_socket, "mirror_to_socket": rates.mirror_to_socket}
        print(json.dumps({**asdict(rates), **ratios}, indent=2))
