"""A standby agent: it runs on its node before any job does, with the platform's modules imported in a zygote.

A job without an environment of its own adopts the agent with its zygote and starts as fast as its ranks boot. Any other
job adopts the agent too, which then starts the zygote that the job needs.
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
from regroup.workers.agent.job_identity import find_obstacle
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_wire import expose
from regroup.workers.contract.messages import from_json
from regroup.workers.environment.process_env import is_same_environment, zygote_environment
from regroup.workers.os import node_facts, orphans, scratch_dir
from regroup.workers.zygote import template_client
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink

_TEMPLATE_TIMEOUT_S = 60.0
"""Longest wait for the node's template, which may still import torch. After that the standby starts its own zygote."""
IDLE_TIMEOUT_S = 600.0
"""Time without a call of `prewarm` after which a standby ends: its control plane is gone."""


class StandbyAgent(NodeAgent):
    """Belongs to the node until `adopt`, and to one job after that."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._platform = self._config
        self._zygote: ZygoteLink | None = None
        self._is_adopted = False
        self._timeout: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"regroup agent on {self._platform.node_name}"

    async def prewarm(self) -> None:
        """Import the modules that every job needs, and check the node. Call this repeatedly, or the standby ends."""
        if self._is_adopted:
            return
        self._cancel_timeout()
        self._timeout = asyncio.get_running_loop().call_later(IDLE_TIMEOUT_S, _end)
        template = _ensure_template(self._platform)
        if self._zygote is None or self._zygote.dead:
            self._zygote = _fork(self._platform, template) or _start(self._platform)
        zygote = self._zygote
        if not await zygote.exists(_TEMPLATE_TIMEOUT_S) and not self._is_adopted:
            zygote.close()
            self._zygote = zygote = _start(self._platform)
        await zygote.ready()
        await asyncio.to_thread(scratch_dir.sweep)
        if self._platform.preflight and not self._is_adopted:
            with contextlib.suppress(ZygoteDied):
                await self._preflight.check_standby(zygote, Path(tempfile.gettempdir()))

    async def describe_faults(self) -> str:
        """Return the faults of this node that the standby check found; empty without any."""
        if self._is_adopted:
            return ""
        obstacle = find_obstacle(self._platform.rank_users)
        found = [message for _, message in self._preflight.standby_report.failed]
        return "; ".join([*([f"cannot run ranks as users of their own: {obstacle}"] if obstacle else []), *found])

    async def is_clear(self, job_id: str) -> bool:
        """Return True if no process of a job lives on this node, so that its devices may be reused."""
        folder = scratch_dir.path_of(job_id, self._platform.node_id)
        return not self._is_adopted and not await asyncio.to_thread(orphans.in_use, folder)

    async def adopt(self, config: dict[str, Any]) -> bool:
        """Become the agent of a job. Return False if the agent belongs to another job already."""
        job_config = from_json(config)
        assert isinstance(job_config, AgentConfig)
        if self._is_adopted:
            return job_config.job_id == self._config.job_id
        self._is_adopted = True
        self._config = job_config
        type(self).__name__ = NodeAgent.__name__  # Ray uses it as the title of the process
        self._cancel_timeout()
        return True

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()

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
    os.kill(os.getpid(), signal.SIGTERM)  # Ray's worker shuts down gracefully, and the zygote ends with it


def _ensure_template(config: AgentConfig) -> str:
    """Start the node's template unless it runs, and extend its life. Return its address; empty if it cannot start."""
    folder, log = _log_of(template_client.owner_pid())
    try:
        return template_client.ensure_template(
            config.node_name,
            zygote_environment(config),
            config.interpreter or sys.executable,
            config.preload,
            log,
            folder,
        )
    except OSError:
        return ""


def _fork(config: AgentConfig, template: str) -> ZygoteLink | None:
    folder, log = _log_of(os.getpid())
    zygote = ZygoteLink.fork_from(template, log, folder) if template else None
    if zygote is not None:
        zygote.prepare(config.preload, config.warmup)
    return zygote


def _start(config: AgentConfig) -> ZygoteLink:
    folder, log = _log_of(os.getpid())
    zygote = ZygoteLink.start(config.interpreter or sys.executable, zygote_environment(config), log, folder)
    zygote.prepare(config.preload, config.warmup)
    return zygote


def _log_of(pid: int) -> tuple[Path, Path]:
    """Return the folder of logs, and the log of a standby, or of the template that `pid` owns."""
    folder = node_facts.session_log_dir() or Path(tempfile.gettempdir())
    return folder, folder / f"regroup-standby-{pid}.err"
