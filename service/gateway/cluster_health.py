"""The health of a gateway: Kubernetes restarts one whose Ray cluster has not answered for long."""

import asyncio
import time
from collections.abc import Callable

import structlog

from regroup.service.domain.errors import UnavailableError
from regroup.service.ports.cluster import Cluster

EVERY_S = 10.0
"""Interval between two polls."""
LOST_AFTER_S = 120.0
"""Time without an answer after which the process should be restarted: Ray's client does not find a cluster again if its
head was started again."""
_log = structlog.get_logger(__name__)


class ClusterHealth:
    """Polls the cluster for its nodes."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._answered_s = clock()
        self._reason = ""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(EVERY_S)

    async def poll(self) -> None:
        """Poll once, and record the time of the answer."""
        try:
            await self._cluster.nodes()
        except UnavailableError as error:
            if not self._reason:
                _log.warning("the cluster does not answer", reason=str(error))
            self._reason = str(error)
        else:
            if self._reason:
                _log.info("the cluster answers again")
            self._answered_s, self._reason = self._clock(), ""

    def problem(self) -> str:
        """Return why the process should be restarted; empty if the cluster answered lately."""
        silent_s = self._clock() - self._answered_s
        if silent_s <= LOST_AFTER_S:
            return ""
        return f"the cluster has not answered for {silent_s:.0f} s: {self._reason or 'a call does not return'}"
