"""Nodes are about to leave: others are made ready while training runs, then all ranks end at a step they agree on."""

import asyncio
import contextlib
import time
from typing import Any

from regroup.service.policy.drain import Pace, pace
from regroup.service.policy.recovery import Cause
from regroup.service.runtime.agents import AgentError, AgentLostError
from regroup.service.runtime.gang import CALL_TIMEOUT_S, Gang
from regroup.service.runtime.intended import Drain, Intended
from regroup.service.runtime.moved import Leave, Moved
from regroup.service.runtime.payload import Payload
from regroup.service.runtime.telling import Telling
from regroup.service.runtime.watch import Watch
from regroup.service.states import Reason

READY_TIMEOUT_S = 120.0
_TOLD_TIMEOUT_S = 60.0
"""A database that is away for longer is not waited for: the node has to go."""
_POLL_S = 0.2
_LET_GO = "let go"


class Leaving:
    """What is under way of a planned change. A life that follows another begins anew, and finds the agents there."""

    def __init__(self, payload: Payload, gang: Gang, intended: Intended, telling: Telling) -> None:
        self.unready: dict[str, Any] = {}
        """`nodes` that are to be the job's, and `why` those of them that are new cannot, for others to be found."""
        self._payload, self._gang, self._intended, self._telling = payload, gang, intended, telling
        self._work: dict[str, asyncio.Task[None]] = {}
        """By what it is for, so that each is begun once."""
        self._ready: frozenset[str] | None = None
        """Nodes of which those that are new to the job are ready."""
        self._is_ended = False

    def look(self, watch: Watch, *, is_saving: bool) -> Cause | None:
        """Bring it on; returns why the generation ends, once it is to be ended."""
        if self._gang.former and self._needs_nothing(watch):
            self._once(_LET_GO, self._let_go())
        drain, moved = self._intended.drain, self._intended.planned
        if drain is None or (moved is None and not drain.gives_up):
            self._forget()
            self._is_ended = watch.stopped
            return Cause(Reason.DRAINED, "the nodes stay after all", time.time()) if watch.stopped else None
        now_s, times = time.time(), pace(drain.noticed_s, drain.deadline_s)
        if moved is not None:
            self._once(f"ready {sorted(moved.ids)}", self._make_ready(moved))
        if (self._is_ready or drain.gives_up or now_s > times.stop_s) and self._may_stop(
            watch, now_s, times, is_saving
        ):
            asked = f"stop {watch.generation.number} {drain.gives_up}"
            self._once(asked, self._stop(watch, drain))
        self._is_ended = self._has_ended(watch, now_s, times, is_saving)
        return Cause(drain.reason, drain.why, now_s, evidence=drain.evidence) if self._is_ended else None

    def way_on(self) -> Exception | None:
        """How the job goes on after a generation that has ended, by plan or not; None: where it is."""
        if self._is_ended and self._intended.drain is not None and self._intended.drain.gives_up:
            return Leave(self._intended.drain.why, self._intended.drain.reason)
        return self._intended.planned if self._is_ended or self._is_ready else None

    def _needs_nothing(self, watch: Watch) -> bool:
        """Of what the job has left: its first step elsewhere proves that, or its end; a script has its state itself."""
        return watch.first_step_s is not None or watch.complete or self._payload.script is not None

    @property
    def _is_ready(self) -> bool:
        moved = self._intended.planned
        return moved is not None and moved.ids == self._ready

    def _may_stop(self, watch: Watch, now_s: float, times: Pace, is_saving: bool) -> bool:
        """A checkpoint that is being saved is waited for; so is a first step, before which ranks do not listen. Scripts
        never do."""
        listens = self._payload.script is None and watch.first_step_s is not None
        return listens and (not is_saving or now_s > times.stop_s)

    def _has_ended(self, watch: Watch, now_s: float, times: Pace, is_saving: bool) -> bool:
        drain = self._intended.drain
        assert drain is not None, "it is asked only where there is one"
        if self._payload.script is not None:  # its steps and its state are its own: it has none to agree on
            return self._is_ready or drain.gives_up or now_s > times.stop_s
        if watch.stopped:
            return not (drain.gives_up and is_saving) or (drain.deadline_s is not None and now_s > drain.deadline_s)
        return now_s > times.cut_s

    def _once(self, name: str, work: Any) -> None:
        if name in self._work:
            work.close()
            return
        self._work[name] = asyncio.get_running_loop().create_task(work)

    def _forget(self) -> None:
        for name in self._work.keys() - {_LET_GO}:
            self._work.pop(name).cancel()
        self._ready, self.unready = None, {}

    async def _make_ready(self, moved: Moved) -> None:
        """Agents, zygotes and data on the nodes that come."""
        self._ready, self.unready = None, {}
        payload = self._payload.on(moved.nodes)
        configs = {node: config for node, config in payload.agent_configs().items() if node not in self._gang.configs}
        joining = Gang(self._gang.agents, configs, prepared=self._gang.prepared)
        try:
            await joining.up(READY_TIMEOUT_S)
            await joining.check_storage()
            if payload.sources is not None:
                await joining.prepare_data(payload.sources)
            self._ready = moved.ids
        except (AgentError, AgentLostError) as error:
            self.unready = {"nodes": sorted(moved.ids), "why": str(error)}

    async def _let_go(self) -> None:
        """End the agents of the nodes that the job has left, once the database has all that they had to tell."""

        async def told(node: str) -> None:
            with contextlib.suppress(AgentLostError, TimeoutError):
                async with asyncio.timeout(_TOLD_TIMEOUT_S):
                    while True:
                        if not (await self._gang.agents.call(node, "status", timeout_s=CALL_TIMEOUT_S))["unsent"]:
                            return
                        await asyncio.sleep(_POLL_S)

        try:
            await asyncio.gather(*(told(node) for node in self._gang.former))
            await self._gang.shut_down(list(self._gang.former))
        finally:
            self._gang.former = {}

    async def _stop(self, watch: Watch, drain: Drain) -> None:
        with contextlib.suppress(AgentError, AgentLostError):  # its end is noticed elsewhere
            await self._gang.stop(watch.generation, drain.why, save=drain.gives_up)
            self._telling.leaves(watch.generation.number, f"ranks are told to end at their next step: {drain.why}")
