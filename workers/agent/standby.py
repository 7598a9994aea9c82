"""An agent in waiting: on its node before any job is, with the platform's modules imported in a zygote.

A job that asks for no environment of its own takes it, and starts in the time that its ranks need. Any other job takes
it too, and lets it start a zygote as the job wants it.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from regroup.workers.agent.agent import NodeAgent
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_wire import expose
from regroup.workers.contract.messages import from_json
from regroup.workers.environment.process_env import is_same_environment, zygote_environment
from regroup.workers.os import node_facts, orphans, scratch_dir
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink

IDLE_TIMEOUT_S = 600.0
"""Left alone for so long, it ends: the control plane that kept it is gone."""


class StandbyAgent(NodeAgent):
    """Belongs to the node until `adopt`, and to one job from then on."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._platform = self._config
        self._zygote: ZygoteLink | None = None
        self._taken = False
        self._alarm: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"regroup standby on {self._platform.node_name}"

    async def prewarm(self) -> None:
        """Import what every job imports; to be asked again and again, or the standby ends."""
        if self._taken:
            return
        self._quiet()
        self._alarm = asyncio.get_running_loop().call_later(IDLE_TIMEOUT_S, _end)
        if self._zygote is None or self._zygote.dead:
            self._zygote = _start(self._platform)
        await self._zygote.ready()
        await asyncio.to_thread(scratch_dir.sweep)
        if self._platform.preflight and not self._taken:
            with contextlib.suppress(ZygoteDied):
                await self._preflight.while_waiting(self._zygote, Path(tempfile.gettempdir()))

    async def describe_faults(self) -> str:
        """What is wrong with this node, as far as was found while it waited; empty if nothing."""
        return "" if self._taken else "; ".join(message for _, message in self._preflight.waiting.failed)

    async def is_clear(self, job_id: str) -> bool:
        """Nothing of a job lives on this node, and what it held here may be given to another."""
        folder = scratch_dir.path_of(job_id, self._platform.node_id)
        return not self._taken and not await asyncio.to_thread(orphans.in_use, folder)

    async def adopt(self, config: dict[str, Any]) -> bool:
        """Become the agent of a job; False if it is another job's already."""
        known = from_json(config)
        assert isinstance(known, AgentConfig)
        if self._taken:
            return known.job_id == self._config.job_id
        self._taken = True
        self._config = known
        type(self).__name__ = NodeAgent.__name__  # Ray makes the process's title of it
        self._quiet()
        return True

    def _quiet(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _spare_zygote(self) -> ZygoteLink | None:
        zygote, self._zygote = self._zygote, None
        if zygote is None or zygote.dead or is_same_environment(self._platform, self._config):
            return zygote
        zygote.close()
        zygote.process.kill()
        zygote.process.wait()
        return None


StandbyAgentActor = expose(StandbyAgent)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # Ray's worker ends in order, and the zygote with it


def _start(config: AgentConfig) -> ZygoteLink:
    folder = node_facts.session_log_dir() or Path(tempfile.gettempdir())
    log = folder / f"regroup-standby-{os.getpid()}.err"
    zygote = ZygoteLink.start(config.interpreter or sys.executable, zygote_environment(config), log, folder)
    zygote.prepare(config.preload, config.warmup)
    return zygote
