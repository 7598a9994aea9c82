"""Agents in memory. Calls pass through the same encoding as calls of a real agent's actor."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regroup.service.ports.agents import AgentError
from regroup.workers.contract import agent_wire
from regroup.workers.contract.agent_api import AgentApi
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import (
    AgentErrorKind,
    AgentStatus,
    CheckpointScan,
    Dataset,
    DataSources,
    DeathProof,
    LogPiece,
    MirrorSent,
    NodeDescription,
    PreflightReport,
    PreflightRequest,
    RankInspection,
    RankStack,
    ShardHolder,
    SourceListing,
    StoreAddress,
    TransferAddress,
)
from regroup.workers.contract.codec import plain
from regroup.workers.contract.held_sets import HeldShard, sets_of
from regroup.workers.contract.messages import AgentReport, Join
from regroup.workers.contract.rank_starts import decode_holders, joins_of


def description(node: str) -> NodeDescription:
    """Return the node description of a ready zygote."""
    return NodeDescription(node, f"boot of {node}", "host", "3.13.0", 1, 2**30, 2**30, 1, 0.1, 0.0, "fork", "")


class FakeAgents:
    """All agents of a job. A test overrides the handlers it needs: `_<method>(node, …)` for a method of `AgentApi`.

    A handler may be a coroutine function. A method without a handler does nothing. Handlers of `kill_ranks` get no
    `for_restore`: the proof then has the shards of `_list_shards`.
    """

    def __init__(self) -> None:
        self.calls: list[Any] = []
        """(node, method), unless a test's `intercept` records something else."""
        self.names: dict[str, str] = {}
        """Node id → name, of the agents that were started."""

    async def start(self, config: AgentConfig) -> None:
        """Record the start."""
        self.calls.append((config.node_id, "start"))
        self.names[config.node_id] = config.node_name

    async def kill(self, node_id: str) -> None:
        """Record the kill."""
        self.calls.append((node_id, "kill"))

    async def planned_end(self, node_id: str) -> str:
        """Return nothing: no node ends by plan."""
        return ""

    def agent(self, node_id: str, *, timeout_s: float) -> AgentApi:
        """Return an agent whose calls reach the handlers."""

        async def send(method: str, encoded: list[Any]) -> Any:
            arguments = agent_wire.SIGNATURES[method].decoded(encoded)
            await self.intercept(node_id, method, arguments)
            if method == "form_ranks":
                common, starts, holders = arguments
                arguments = [joins_of(common, starts), starts.devices, decode_holders(holders, node_id)]
            elif method == "prepare_ranks":
                common, starts = arguments
                arguments = [joins_of(common, starts), starts.devices]
            elif method == "begin_ranks":
                arguments[2] = decode_holders(arguments[2], node_id)
            for_restore = method == "kill_ranks" and arguments.pop()
            handler = getattr(self, f"_{method}", None)
            result = handler(node_id, *arguments) if handler is not None else None
            result = await result if inspect.isawaitable(result) else result
            if method in ("list_shards", "verify_shards"):
                result = sets_of(result)
            if for_restore:
                result = replace(result, held=tuple(sets_of(self._list_shards(node_id))))
            return plain(result)

        return agent_wire.client(send)

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        """Record a call. A test that overrides it may wait or raise."""
        self.calls.append((node_id, method))

    def error(self, node: str, kind: AgentErrorKind, message: str) -> AgentError:
        """Return the error of an agent."""
        return AgentError(node, self.names.get(node, node), kind, message)

    # ------------------------------------------------------------ handlers

    def _start_zygote(self, node: str) -> NodeDescription:
        return description(node)

    def _run_preflight(self, node: str, request: PreflightRequest) -> PreflightReport:
        return PreflightReport()

    def _check_storage(self, node: str, nonce: str) -> bool:
        return True

    def _list_sources(self, node: str, sources: DataSources) -> SourceListing:
        return SourceListing({"/x": 1})

    def _prepare_data(self, node: str, sources: DataSources) -> Dataset:
        return {"fingerprint": "f"}

    def _fetch_data(self, node: str, prepared: Dataset) -> Dataset:
        return {"train": "/d"}

    def _start_store(self, node: str, generation: int, is_next: bool) -> StoreAddress:
        return StoreAddress("h", 1)

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        return None

    def _stop_ranks(self, node: str, generation: int, reason: str, save: bool) -> None:
        return None

    def _terminate_ranks(self, node: str, generation: int) -> None:
        return None

    def _kill_ranks(self, node: str, generation: int) -> DeathProof:
        return DeathProof((), AgentReport(node, "", generation, (), ()))

    def _list_shards(self, node: str) -> list[HeldShard]:
        return []

    def _verify_shards(self, node: str, generation: int, step: int) -> list[HeldShard]:
        return [shard for shard in self._list_shards(node) if (shard.generation, shard.step) == (generation, step)]

    def _transfer_address(self, node: str) -> TransferAddress:
        return TransferAddress(node, 1, "t", node)

    def _send_mirror(
        self, node: str, generation: int, step: int, ranks: Sequence[int], to: TransferAddress, rate: float | None
    ) -> MirrorSent:
        return MirrorSent(0, 0.0)

    def _scan_checkpoints(self, node: str) -> CheckpointScan:
        return CheckpointScan()

    def _status(self, node: str) -> AgentStatus:
        return AgentStatus(0)

    def _dump_stacks(self, node: str) -> dict[int, RankStack]:
        return {}

    def _inspect_ranks(self, node: str) -> dict[int, RankInspection]:
        return {}

    def _upload_evidence(self, node: str, generation: int, incident: str) -> int:
        return 0

    def _read_log(self, node: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogPiece:
        return LogPiece(None, offset, 0)
