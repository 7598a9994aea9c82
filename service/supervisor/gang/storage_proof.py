"""Proof that a job's nodes share durable storage and can write to it.

One node writes a file, and every other node reads it before the first training. After that, storage that does not
respond or refuses writes is a condition of the job: a node may join, because the state that it needs is in memory.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.calls import gather_all
from regroup.service.supervisor.gang.gang import Gang
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import Note

_CHECK_TIMEOUT_S = 60.0
_VISIBLE_WITHIN_S = 5.0
"""Longest time until a file that one node wrote is visible on another: network file systems cache folders."""
_POLL_S = 0.25
_RECHECK_S = 10.0
_SOON_S = 3.0
"""Longest wait for a node's storage once the job has trained: a recovery from memory must not wait for it."""
_STORAGE_ERRORS = (AgentErrorKind.STORAGE, AgentErrorKind.STORAGE_UNAVAILABLE)


class StorageProof:
    """Proves the storage of one gang's nodes, and checks deferred nodes again."""

    def __init__(self, gang: Gang, nonce: str, emit_note: Callable[[str, Note], None]) -> None:
        """Initialize.

        Args:
            gang: agents whose storage is proven.
            nonce: name of the file; no earlier start of the job has used it.
            emit_note: receives the conditions of nodes.
        """
        self._gang, self._nonce, self._emit_note = gang, nonce, emit_note
        self._facts = gang.node_facts
        self._recheck: asyncio.Task[None] | None = None
        self._rechecked_s = time.monotonic()

    async def run(self, *, may_defer: bool) -> None:
        """Prove that every unproven node can write to storage and sees what the other nodes write.

        Args:
            may_defer: the job has trained before, so nodes with failing storage are only reported.

        Raises:
            AgentError: a node cannot write, or does not share the storage of the other nodes.
        """
        nodes = [node for node in self._gang.configs if node not in self._facts.storage_seen]
        if nodes:
            await self._prove(nodes, may_defer=may_defer)

    def poll(self) -> None:
        """Check deferred nodes again from time to time. Call this while the job trains."""
        deferred = [node for node in self._gang.configs if node in self._facts.storage_deferred]
        is_due = time.monotonic() - self._rechecked_s > _RECHECK_S
        if deferred and is_due and (self._recheck is None or self._recheck.done()):
            self._rechecked_s = time.monotonic()
            self._recheck = asyncio.get_running_loop().create_task(self._check_again(deferred))

    async def _prove(self, nodes: Sequence[str], *, may_defer: bool) -> None:
        seen = await self._inspect(nodes, may_defer=may_defer)
        waiting = [node for node in nodes if node not in seen and node not in self._facts.storage_deferred]
        if waiting and not self._facts.storage_seen:
            await self._write(waiting, may_defer=may_defer)
            waiting = [node for node in waiting if node not in self._facts.storage_deferred]
        deadline = time.monotonic() + _VISIBLE_WITHIN_S
        while waiting:
            seen = await self._inspect(waiting, may_defer=may_defer)
            waiting = [node for node in waiting if node not in seen and node not in self._facts.storage_deferred]
            if waiting and time.monotonic() > deadline:
                raise self._not_shared(waiting)
            if waiting:
                await asyncio.sleep(_POLL_S)

    async def _write(self, nodes: Sequence[str], *, may_defer: bool) -> None:
        """Have the first of these nodes that can do so write the proof."""
        for node in nodes:
            try:
                await self._agent(node).write_storage_proof(self._nonce)
            except AgentError as error:
                self._defer(error, may_defer=may_defer)
            else:
                return

    async def _inspect(self, nodes: Sequence[str], *, may_defer: bool) -> Collection[str]:
        """Return the nodes that see the proof. A node whose storage fails is deferred, or its error is raised."""

        async def one(node: str) -> bool:
            try:
                async with asyncio.timeout(_SOON_S if may_defer else None):
                    return await self._agent(node).check_storage(self._nonce)
            except AgentError as error:
                self._defer(error, may_defer=may_defer)
            except TimeoutError:
                why = f"durable storage did not respond within {_SOON_S:.0f} s"
                name = self._gang.configs[node].node_name
                self._defer(AgentError(node, name, AgentErrorKind.STORAGE_UNAVAILABLE, why), may_defer=may_defer)
            return False

        found = await gather_all(one(node) for node in nodes)
        seen = {node for node, is_seen in zip(nodes, found, strict=True) if is_seen}
        self._facts.storage_seen |= {node: self._gang.configs[node].node_name for node in seen}
        return seen

    async def _check_again(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            try:
                is_seen = await self._agent(node).check_storage(self._nonce)
            except (AgentError, AgentLostError):
                continue
            if is_seen or not self._facts.storage_seen:
                self._facts.storage_deferred.discard(node)
                self._report(node, "")
            if is_seen:
                self._facts.storage_seen[node] = self._gang.configs[node].node_name

    def _defer(self, error: AgentError, *, may_defer: bool) -> None:
        if not may_defer or error.kind not in _STORAGE_ERRORS:
            raise error
        self._facts.storage_deferred.add(error.node_id)
        self._report(error.node_id, f"{error.message}; training continues, checkpoints cannot be saved")

    def _report(self, node: str, message: str) -> None:
        data = {"node": self._gang.configs[node].node_name, "what": "storage", "message": message}
        self._emit_note(node, Note(0, "condition", data, time.time()))

    def _not_shared(self, missing: Sequence[str]) -> AgentError:
        """Return the error that names the nodes on both sides."""
        names = ", ".join(self._gang.configs[node].node_name for node in missing)
        others = ", ".join(sorted(self._facts.storage_seen.values())) or "the node that wrote it"
        node, uri = missing[0], self._gang.configs[missing[0]].storage_uri
        message = (
            f"storage_uri {uri!r} is not shared: {names} does not see a file there that {others} sees. "
            "Use storage that every node reaches under this URI"
        )
        return AgentError(node, self._gang.configs[node].node_name, AgentErrorKind.STORAGE, message)

    def _agent(self, node: str) -> AgentApi:
        return self._gang.agents.agent(node, timeout_s=_CHECK_TIMEOUT_S)
