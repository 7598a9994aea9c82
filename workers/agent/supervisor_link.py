"""The connection of an agent to its job's supervisor: reports, heartbeats and requests.

The agent finds the supervisor by name, so a restarted supervisor gets the next report.
"""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.progress_reports import ProgressReports
from regroup.workers.agent.ranks.activity_reports import ActivityReports
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import FaultDue, to_json
from regroup.workers.os import procfs

_POLL_S = 1.0
"""Seconds between polls of the ranks' activity, and between reports until the supervisor asks for fewer."""
_GATHER_S = 0.2
"""Longest time for which a report of a large job waits for more messages that are not urgent."""
_REPORT_TIMEOUT_S = 5.0
_HANDLE_TIMEOUT_S = 15.0
"""Time without a reply after which the agent resolves the name of the supervisor again.

The lookup blocks the event loop until the head of the cluster replies. On a bad network that can take seconds, in
which no heartbeat is sent.
"""
_RETRY_S = 0.1
NAMESPACE = "regroup"


class SupervisorLink:
    """Sends what an agent has for its supervisor."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._supervisor: Any = None
        self._heartbeats, self._activity = HeartbeatSender(), ActivityReports()
        self._progress = ProgressReports()
        self._contact_s = procfs.boottime_s()
        self._report_every_s = _POLL_S
        self._due_s = 0.0
        self._has_news = asyncio.Event()
        self._delivered = asyncio.Event()

    def wake(self) -> None:
        """Send the next report at once."""
        self._has_news.set()

    async def send_reports(self, host: JobHost) -> None:
        """Report at once when there is news, and otherwise when a report is due, until this task is cancelled."""
        while True:
            if await self._wait_for_news(_POLL_S) or procfs.boottime_s() >= self._due_s:
                if self._report_every_s > _POLL_S:
                    await self._gather_news(host)
                self._has_news.clear()
                # Half a poll earlier than due, so that a poll that comes slightly early is not skipped.
                self._due_s = procfs.boottime_s() + self._report_every_s - _POLL_S / 2
                await self._report(host)
            else:
                host.poll_ranks()
            host.trim_logs()
            host.renew_lease(self._contact_s)

    async def send_heartbeats(self) -> None:
        """Send heartbeats until this task is cancelled."""
        await self._heartbeats.send()

    async def wait_for_delivery(self, host: JobHost) -> None:
        """Wait until the supervisor has all messages that exist now.

        A checkpoint outlives this agent. Without the wait, steps in the checkpoint could be missing from the ledger
        permanently.
        """
        newest = host.outbox.newest
        while not host.outbox.is_received(newest):
            self._delivered.clear()
            self._has_news.set()
            await self._delivered.wait()

    async def authorize_fault(self, due: FaultDue) -> bool:
        """Ask the supervisor whether to inject a fault; retry until it replies."""
        while True:  # the rank waits for the reply, and the supervisor may be down
            with contextlib.suppress(RayError, ValueError):
                supervisor = ray.get_actor(self._config.supervisor, namespace=NAMESPACE)
                answer: Any = supervisor.authorize_fault.remote(due.index, due.do)
                return bool(await answer)
            await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Close the socket of the heartbeats."""
        self._heartbeats.close()

    async def _wait_for_news(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_news.wait(), timeout_s)
        return self._has_news.is_set()

    async def _gather_news(self, host: JobHost) -> None:
        """Wait for more messages, because all ranks of a large job start at once. A rank's death does not wait."""
        until_s = procfs.boottime_s() + _GATHER_S
        while len(host.outbox.next_batch()) and not host.outbox.has_urgent:
            self._has_news.clear()
            left_s = until_s - procfs.boottime_s()
            if left_s <= 0 or not await self._wait_for_news(left_s):
                return

    async def _report(self, host: JobHost) -> None:
        activity = self._activity.next_report(host.generation, *host.poll_ranks())
        restore, save = self._progress.next_report(host.restore_progress(), host.checkpoints.progress())
        report = replace(host.report(), activity=activity, restore=restore, save=save)
        try:
            supervisor = self._supervisor or ray.get_actor(self._config.supervisor, namespace=NAMESPACE)
            answer: Any = supervisor.report.remote(to_json(report))
            reply: dict[str, Any] = await asyncio.wait_for(answer, _REPORT_TIMEOUT_S)
        except (RayError, ValueError, TimeoutError) as error:  # the outbox retains the messages
            if not isinstance(error, TimeoutError) or procfs.boottime_s() - self._contact_s > _HANDLE_TIMEOUT_S:
                self._supervisor = None  # the supervisor restarts, or the cluster is unreachable
            self._activity.reset()  # whether it arrived is unknown
            self._due_s = procfs.boottime_s() + _POLL_S / 2
            await asyncio.sleep(_RETRY_S)
            return
        self._supervisor = supervisor
        self._report_every_s = reply["report_every_s"]
        self._activity.confirm(reply["boot_id"])
        self._progress.confirm()
        if reply["needs_full"]:
            self._activity.reset()
            self._progress.reset()
        self._heartbeats.set_listener(self._config.node_id, reply["heartbeats"])
        self._contact_s = procfs.boottime_s()
        host.outbox.acknowledge(reply["boot_id"], reply["received"], reply["durable"])
        self._delivered.set()
        if (len(report.messages) and host.outbox.next_batch()) or self._activity.is_full_next:
            self._has_news.set()
