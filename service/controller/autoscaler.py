"""The autoscaler is asked for what jobs wait for, and for nothing once they do not."""

import time
from collections.abc import Callable, Sequence

import structlog

from regroup.service.policy.scheduling.autoscaler_request import Bundle, NodeRequest
from regroup.service.ports.cluster import Cluster

_AGAIN_S = 15.0
"""Whoever asked last is heard: others in the cluster may ask, too."""
_log = structlog.get_logger(__name__)


class AutoscalerRequests:
    """What was asked for last, by this control plane."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._asked: Sequence[Bundle] | None = None
        """None: what another control plane has asked for is not known."""
        self._asked_s = 0.0

    async def ask(self, request: NodeRequest) -> None:
        """Ask if it is something else, or long ago. That nothing is wanted is said once.

        Raises:
            UnavailableError: the cluster does not answer.
        """
        is_new = request.bundles != self._asked
        if not is_new and not (request.bundles and self._clock() - self._asked_s > _AGAIN_S):
            return
        await self._cluster.request_nodes(request.bundles)
        if is_new:
            _log.info("asked the autoscaler", bundles=len(request.bundles), jobs=sorted(request.jobs))
        self._asked, self._asked_s = request.bundles, self._clock()
