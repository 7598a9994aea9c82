"""Host memory of the shards on each node, sampled from the processes of the agents that hold them."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cluster import processes

_NODE_VARIABLE = "RAY_OVERRIDE_NODE_ID_FOR_TESTING"
_AGENT = "ray::NodeAgent"
_FILES = "/memfd:regroup-"
_BLOCK_BYTES = 512
_INTERVAL_S = 0.02
_SEARCH_INTERVAL_S = 1.0


@dataclass(frozen=True)
class MemorySample:
    """Memory of one agent at one moment."""

    time_s: float
    """Seconds since the epoch."""
    files_bytes: int
    """Memory files that the agent has open or mapped: buffers, shards of an old layout, mirrors."""
    anonymous_bytes: int
    """Other memory of the agent, in which parts are staged."""


@dataclass
class NodeMemory:
    """Samples of all nodes."""

    samples: dict[str, list[MemorySample]] = field(default_factory=dict[str, list[MemorySample]])
    """Node id → samples in the order of time."""

    def peak_bytes(self, node_id: str, since_s: float, until_s: float) -> int:
        """Return the most memory of a node's shards in a period, with what the agent staged beyond its start.

        Raises:
            ValueError: there is no sample in the period.
        """
        some = [each for each in self.samples.get(node_id, ()) if since_s <= each.time_s <= until_s]
        if not some:
            raise ValueError(f"node {node_id} has no sample between {since_s:.3f} and {until_s:.3f}")
        first = some[0].anonymous_bytes
        return max(each.files_bytes + max(0, each.anonymous_bytes - first) for each in some)


@contextmanager
def sampled(pids: Iterable[int]) -> Iterator[NodeMemory]:
    """Sample the agents among the descendants of these processes until the context ends."""
    roots, found, ended = list(pids), NodeMemory(), threading.Event()
    thread = threading.Thread(target=_sample, args=(roots, found, ended), name="node-memory")
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def sample_of(pid: int) -> MemorySample | None:
    """Return the memory of a process; None if it has exited."""
    try:
        anonymous = next(
            int(line.split()[1]) << 10
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("RssAnon:")
        )
        return MemorySample(time.time(), sum(_file_sizes(pid).values()), anonymous)
    except (OSError, StopIteration):
        return None


def _sample(roots: list[int], found: NodeMemory, ended: threading.Event) -> None:
    agents: Mapping[int, str] = {}
    searched_s = 0.0
    while not ended.wait(_INTERVAL_S):
        if time.monotonic() - searched_s > _SEARCH_INTERVAL_S:
            agents, searched_s = _agents(roots), time.monotonic()
        for pid, node_id in agents.items():
            if (sample := sample_of(pid)) is not None:
                found.samples.setdefault(node_id, []).append(sample)


def _agents(roots: Iterable[int]) -> dict[int, str]:
    """Return process id → node id of the agents."""
    pids = [pid for pid in processes.descendants(roots) if processes.command_line(pid).startswith(_AGENT)]
    return {pid: node_id for pid in pids if (node_id := processes.environment(pid).get(_NODE_VARIABLE))}


def _file_sizes(pid: int) -> dict[int, int]:
    """Return number of a memory file → its allocated bytes, for files that a process has open or mapped."""
    found: dict[int, int] = {}
    for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
        for entry in Path(folder).iterdir():
            with suppress(OSError):  # closed or unmapped since
                if str(entry.readlink()).startswith(_FILES):
                    status = entry.stat()
                    found[status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return found
