"""The zygote of a job on one node: started with the job's Python and code, and restarted after it has died."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regroup.workers.agent.job_identity import SAME_USER, JobIdentity
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.archive_rules import ArchiveLimits
from regroup.workers.environment import code_archive
from regroup.workers.environment.interpreter import JobPython
from regroup.workers.environment.process_env import user_variables, zygote_environment
from regroup.workers.os import orphans, procfs
from regroup.workers.zygote import template_client
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink

_KILL_TIMEOUT_S = 8.0
_TEMPLATE_TIMEOUT_S = 30.0
"""Longest wait for the node's template to fork the zygote of a standby; it may still import torch."""


class JobZygote:
    """Owns the zygote process of one job."""

    def __init__(
        self,
        config: AgentConfig,
        scratch: Path,
        python: JobPython,
        log: Callable[[], Path],
        on_exit: Callable[[int, int, float], None],
        on_death: Callable[[], None],
        spare: ZygoteLink | None,
        identity: JobIdentity = SAME_USER,
    ) -> None:
        """Initialize the owner; start no process.

        Args:
            config: configuration of the agent.
            scratch: scratch folder of the job.
            python: the job's Python.
            log: returns the path of the zygote's log.
            on_exit: called with id, exit code and time of each child that ends.
            on_death: called when the zygote itself dies.
            spare: zygote that was started before the job came, with the same interpreter and environment.
            identity: user as which the zygote and all its children run.
        """
        self._identity = identity
        self._config, self._scratch, self._python, self._log = config, scratch, python, log
        self._on_exit, self._on_death = on_exit, on_death
        self._spare = spare
        spares = {spare.process.pid} if spare is not None else set[int]()
        self._earlier_children = frozenset(procfs.children(os.getpid())) - spares
        """Children that this process had before. They belong to no job."""
        self._link: ZygoteLink | None = None
        self._can_use_template = True
        self._code: Path | None = None
        """Folder of the job's own code."""

    @property
    def live(self) -> ZygoteLink | None:
        """The zygote, if it is alive."""
        return self._link if self._link is not None and not self._link.dead else None

    async def prepare(self) -> Mapping[str, Any]:
        """Install the job's Python and code, start the zygote and return its report.

        Raises:
            CodeError: this node cannot get the job's code.
            PythonUnfit: this node cannot get the job's Python.
            ZygoteRefused: a preload failed.
            ZygoteDied: the zygote died for another reason.
        """
        await self._python.prepare()
        if self._config.code:
            self._code = await asyncio.to_thread(
                code_archive.unpack,
                self._config.code,
                self._config.blob_uri,
                code_archive.node_cache(),
                self._scratch / code_archive.DIRECTORY,
                ArchiveLimits(unpacked_bytes=self._config.code_limit_bytes),
                self._identity.user,
            )
        had_spare, link = self._spare is not None, self.acquire()
        if not await link.exists(_TEMPLATE_TIMEOUT_S):
            link.close()
        try:
            return await link.ready()
        except ZygoteDied:
            if link.is_child and not had_spare:
                raise
            return await self.acquire().ready()  # the standby's zygote had died, or the template forked none

    def acquire(self) -> ZygoteLink:
        """Return the zygote; start one if none is alive.

        Raises:
            UserUnavailable: the job needs a user of its own, and this node cannot provide one.
        """
        self._identity.require()
        if (live := self.live) is not None:
            return live
        spare, self._spare = self._spare, None
        if spare is not None and not spare.dead:
            with contextlib.suppress(ZygoteDied):
                return self._assign(spare)
        if self._link is not None and not self._link.is_child and not self._link.process.pid:
            self._can_use_template = False  # the template forked none: start the next one without it
        return self._assign(self._fork_from_template() or self._start())

    async def kill_ranks(self, spare: Sequence[int] = ()) -> list[int]:
        """Kill all children except running tasks and those in `spare`, with proof of death.

        Return the pids that outlived SIGKILL. If the zygote is dead, nothing is spared.
        """
        link = self._link
        if link is None:
            return []
        try:
            return await link.kill_ranks(_KILL_TIMEOUT_S, spare)
        except (ZygoteDied, TimeoutError):
            link.close()
            self._link = None
            return await asyncio.to_thread(self._kill_orphans, link)

    def _kill_orphans(self, link: ZygoteLink) -> list[int]:
        """Kill what a dead zygote left, with proof of death. Return the pids that outlived SIGKILL."""
        if link.is_child:
            return orphans.kill_orphans(link.process.pid, self._earlier_children)
        link.process.kill()
        return orphans.kill_remains(self._scratch)

    async def close(self) -> None:
        """End the zygote and wait until it has exited."""
        if self._link is not None:
            self._link.close()
            await asyncio.to_thread(self._link.process.wait)

    def _fork_from_template(self) -> ZygoteLink | None:
        """Return a fork of the node's template, if there is one for this job's interpreter and environment."""
        if self._python.is_own or not self._can_use_template:
            return None
        environment = zygote_environment(self._config)
        address = template_client.template_address(self._config.node_name, environment, self._python.executable)
        return ZygoteLink.fork_from(address, self._log(), self._scratch)

    def _start(self) -> ZygoteLink:
        python = self._python
        place = (self._log(), self._scratch)
        return ZygoteLink.start(python.executable, python.environment(), *place, self._identity.user)

    def _assign(self, link: ZygoteLink) -> ZygoteLink:
        user, home = self._identity.user, self._identity.home
        folder = self._code or (self._scratch if user is None else home)
        variables = user_variables(self._config, user, home)
        link.serve(self._on_exit, self._on_death, self._log(), folder, self._code, user, variables)
        link.prepare(self._config.preload, self._config.warmup)
        self._link = link
        return link
