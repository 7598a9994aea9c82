"""A cluster for servers of the benchmarks: nodes that are free, and nothing that runs."""

from collections.abc import Mapping, Sequence

from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node
from regroup.service.ports.cluster import LogChunk, RankStack

_RACKS, _NODES_PER_RACK, _DEVICES = 4, 8, 8


class IdleCluster:
    """The calls of `Cluster` that pages make. No job of the benchmark is placed, so nothing else is called."""

    async def nodes(self) -> Sequence[Node]:
        """Return nodes in racks, with free GPUs."""
        return [
            Node(
                f"{rack:02}{place:02}".ljust(56, "0"), f"node-{rack}-{place}", "10.0.0.1",
                labels={DEFAULT_LABELS[Level.RACK]: f"rack-{rack}"}, cpus=64, free_cpus=64, gpus=_DEVICES,
                free_gpus=_DEVICES,
            )
            for rack in range(_RACKS)
            for place in range(_NODES_PER_RACK)
        ]  # fmt: skip

    async def unreachable(self) -> Mapping[str, str]:
        """Return no cluster: all answer."""
        return {}

    async def lost_nodes(self) -> Sequence[str]:
        """Return no node."""
        return []

    async def actors(self, job_id: str = "") -> set[str]:
        """Return no actor."""
        return set()

    async def reservations(self, job_id: str = "") -> set[str]:
        """Return no reservation."""
        return set()

    async def read_log(self, job_id: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        """Return some lines of output."""
        text = b"".join(b"step %d of rank %d\n" % (number, rank) for number in range(100))
        return LogChunk.of(text[offset : offset + limit], offset, len(text), is_ended=False)

    async def stacks(self, job_id: str) -> Mapping[int, RankStack]:
        """Return no stack."""
        return {}

    async def dashboard_url(self) -> str | None:
        """Return no address."""
        return None
