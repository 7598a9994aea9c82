"""Repair of the local Ray cluster while a server runs: nodes that have ended start again."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from regroup.service.domain.backoff import backoff_s
from regroup.service.domain.errors import RegroupError
from regroup.service.local import ray_cluster
from regroup.service.settings import Settings

POLL_S = 1.0
_FIRST_DELAY_S = 2.0
_LONGEST_DELAY_S = 60.0
_STEADY_S = 300.0
"""Time without a loss after which the first delay of a node applies again."""
_log = structlog.get_logger(__name__)


@dataclass
class NodeStarts:
    """Counts of the starts of lost nodes by this process."""

    succeeded: int = 0
    failed: int = 0


class RestartDelays:
    """Delays between the starts of a node that ends repeatedly. Pure."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[int, float]] = {}
        """Node → number of starts in a row, and time of the last one."""

    def is_due(self, node: str, now_s: float) -> bool:
        """Return whether a lost node may start now."""
        count, last_s = self._starts.get(node, (0, 0.0))
        return now_s - last_s >= backoff_s(count, first_s=_FIRST_DELAY_S, longest_s=_LONGEST_DELAY_S)

    def record(self, node: str, now_s: float) -> None:
        """Record a start."""
        count, last_s = self._starts.get(node, (0, 0.0))
        self._starts[node] = (1 if now_s - last_s > _STEADY_S else count + 1, now_s)


async def repair_local_ray(
    settings: Settings, head_lost: asyncio.Event, starts: NodeStarts, clock: Callable[[], float] = time.monotonic
) -> None:
    """Start lost nodes again, until cancelled, and count the starts. Set `head_lost` if the head has ended.

    A process keeps one connection to one cluster, so the server itself must start again to join a new one.
    """
    delays = RestartDelays()
    while True:
        cluster = await asyncio.to_thread(ray_cluster.load, settings.state_dir)
        if cluster is not None and not cluster.is_alive:
            head_lost.set()
            await asyncio.Event().wait()
        for node in cluster.lost_nodes if cluster else ():
            if delays.is_due(node, clock()):
                delays.record(node, clock())
                await _restart(settings, node, starts)
        await asyncio.sleep(POLL_S)


async def _restart(settings: Settings, node: str, starts: NodeStarts) -> None:
    _log.warning("a local node was lost, and starts again", node=node)
    try:
        await asyncio.to_thread(ray_cluster.restart_node, settings, node)
        starts.succeeded += 1
        _log.info("a local node joined the cluster again", node=node)
    except (RegroupError, OSError, ValueError) as error:
        starts.failed += 1
        _log.error("a local node could not start; the next attempt follows", node=node, error=str(error))
