"""The node agent: an actor per job and node around a `JobHost`.

The agent holds no devices. The supervisor finds it by name.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from regroup.workers.agent import prepared_data, storage_proof, token_data
from regroup.workers.agent.checkpoints import folders
from regroup.workers.agent.failures import (
    classify_error,
    classify_setup_error,
    failed,
    guarded,
    storage_failure,
)
from regroup.workers.agent.health.node_monitor import NodeMonitor
from regroup.workers.agent.health.preflight import Preflight
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.ranks import logs
from regroup.workers.agent.storage_proof import STORAGE_TIMEOUT_S
from regroup.workers.agent.supervisor_link import SupervisorLink
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_wire import expose
from regroup.workers.contract.codec import plain
from regroup.workers.contract.held_sets import HeldSet, sets_of
from regroup.workers.contract.messages import AgentRequest, MirrorDue, Restore, Stop, from_json, to_json
from regroup.workers.contract.rank_starts import RankStarts, decode_holders, joins_of
from regroup.workers.data.prepare.ray_pipeline import Pipeline
from regroup.workers.os import node_facts, process_user, procfs, umask
from regroup.workers.storage import async_storage
from regroup.workers.zygote.client import ZygoteLink

_Result = TypeVar("_Result")
REMOVAL_TIMEOUT_S = 300.0
"""Time limit of a removal from durable storage. It is shorter than the time a supervisor waits for its agent."""


class NodeAgent(AgentApi):
    """One job on one node. `NodeAgentActor` is its Ray actor, whose methods accept and return plain data."""

    def __init__(self, config: dict[str, Any]) -> None:
        umask.make_private()
        procfs.prefer_for_oom(0)
        if node_facts.session_log_dir() is not None:  # an actor, with the credentials of Ray and of storage
            process_user.hide_memory()  # after the line above, whose file belongs to root from here on
        agent_config = from_json(config)
        assert isinstance(agent_config, AgentConfig)
        self._config = agent_config
        self._host: JobHost | None = None
        self._link: SupervisorLink | None = None
        self._monitor: NodeMonitor | None = None
        self._pipeline = Pipeline()
        self._preflight = Preflight()
        self._tasks: list[asyncio.Task[None]] = []
        self._secrets_version = ""
        """Name of the values of the project's secrets that this agent has; empty without any."""

    def __repr__(self) -> str:
        return f"regroup agent {self._config.job_name} on {self._config.node_name}"

    async def receive_secrets(self, version: str, values: dict[str, str]) -> None:
        """Receive the values of the project's secrets that the job uses."""
        self._config.project_secrets.clear()
        self._config.project_secrets.update(values)
        self._secrets_version = version
        self._started().learn_secrets()

    async def install_environment(self) -> None:
        """Install the packages that the job's Python needs."""
        await self._set_up(self._started().python.prepare())

    async def start_zygote(self) -> records.NodeDescription:
        """Start the zygote, or wait until it is ready."""
        return await self._set_up(self._started().prepare())

    async def run_preflight(self, request: records.PreflightRequest) -> records.PreflightReport:
        """Check this node before ranks start on it."""
        return await self._guarded(self._run_preflight(request))

    async def check_storage(self, nonce: str) -> bool:
        """Check that this node can write to durable storage, and return whether it sees the proof with this name."""
        return await self._guarded(storage_proof.check(self._config.storage_uri, nonce))

    async def write_storage_proof(self, nonce: str) -> None:
        """Write the file by which other nodes prove that they share durable storage with this one."""
        await self._guarded(storage_proof.write(self._config.storage_uri, nonce, self._config.node_name))

    async def list_sources(self, sources: records.DataSources) -> records.SourceListing:
        """List the job's data as this node sees it."""
        host = self._started()
        if sources.recipe is not None:
            if self._config.rank_users:
                raise failed(prepared_data.NO_RECIPES, self._config.node_name, self._hide)
            call = (self._config, host.scratch, host.python.place, sources.recipe)
            return await self._guarded(asyncio.to_thread(prepared_data.list_sources, *call))
        return await self._guarded(token_data.list_sources(host.acquire_zygote(), _token_sources(sources)))

    async def prepare_data(self, sources: records.DataSources) -> records.Dataset:
        """Make token files or records of the sources, once."""
        host = self._started()
        if sources.recipe is None:
            work = token_data.prepare(
                host.acquire_zygote(),
                self._config,
                host.scratch,
                _token_sources(sources),
                host.note,
                host.identity.user,
            )
            return await self._guarded(work)
        places = {
            node: {**plain(place), "reservations": sources.reservations[node]} for node, place in sources.places.items()
        }
        request = {"data": sources.recipe, "datasets_uri": self._config.datasets_uri, "agent": to_json(self._config)}
        result = await self._guarded(self._pipeline.run({**request, "places": places}, host.note))
        if (error := result.get("error")) is not None:
            self._fail(
                records.AgentFailure(records.AgentErrorKind(error["kind"]), error["message"], error["traceback"])
            )
        return result

    async def fetch_data(self, prepared: records.Dataset) -> records.Dataset:
        """Make prepared data readable on this node."""
        host = self._started()
        place = (self._config, host.scratch, prepared)
        if prepared.get("kind") == "records":
            work = asyncio.to_thread(prepared_data.fetch, *place)
        else:
            work = asyncio.to_thread(token_data.fetch, *place, host.identity.user)
        try:
            host.dataset = await self._guarded(work)
        except AgentFailedError:
            host.dataset = {}
            raise
        return host.dataset

    async def start_store(self, generation: int, is_next: bool) -> records.StoreAddress:
        """Start the generation's rendezvous store."""
        return records.StoreAddress(*await self._guarded(self._start_store(generation, is_next)))

    async def form_ranks(self, common: bytes, starts: RankStarts, holders: bytes) -> None:
        """Fork the generation's ranks on this node."""
        others = decode_holders(holders, self._config.node_id)
        await self._guarded(self._started().form_ranks(joins_of(common, starts), starts.devices, others))

    async def prepare_ranks(self, common: bytes, starts: RankStarts) -> None:
        """Fork the ranks of the next generation while this one trains."""
        await self._guarded(self._started().prepare_ranks(joins_of(common, starts), starts.devices))

    async def begin_ranks(self, generation: int, restore: Restore, holders: bytes) -> None:
        """Let the prepared ranks restore their state and train."""
        others = decode_holders(holders, self._config.node_id)
        await self._guarded(self._started().begin_ranks(generation, restore, others))

    async def discard_ranks(self, generation: int) -> None:
        """Kill the prepared ranks. The running ones train on."""
        await self._guarded(self._started().discard_ranks(generation))

    async def stop_ranks(self, generation: int, reason: str, save: bool) -> None:
        """Request that the ranks end at a step that they agree on."""
        await self._guarded(self._send_to_ranks(generation, Stop(reason, save)))

    async def terminate_ranks(self, generation: int) -> None:
        """Send SIGTERM to the ranks of a generation, once."""
        await self._guarded(self._started().terminate_ranks(generation))

    async def kill_ranks(self, generation: int, for_restore: bool) -> records.DeathProof:
        """Kill the ranks of every generation up to this one, with proof of death."""
        stuck: Sequence[int] = ()
        with contextlib.suppress(AgentFailedError):
            stuck = await self._guarded(self._started().kill_ranks(generation))
        dead_s, host = time.monotonic(), self._started()
        held = sets_of(await host.mirroring.verify_newest()) if for_restore else ()
        return records.DeathProof(tuple(stuck), host.report(), tuple(held), time.monotonic() - dead_s)

    async def list_shards(self) -> list[HeldSet]:
        """List the complete shards of training state in this node's memory."""
        return sets_of(await self._started().mirroring.held_shards())

    async def verify_shards(self, generation: int, step: int) -> list[HeldSet]:
        """Read the shards of a set in this node's memory and return the intact ones."""
        return sets_of(await self._started().mirroring.verify_shards(generation, step))

    async def release_restore_source(self, has_mirrors: bool) -> None:
        """Release the shards that the running ranks were restored from."""
        if not has_mirrors:
            self._started().mirroring.retain(0, 0)
        self._started().buffers.release_source()

    async def transfer_address(self) -> records.TransferAddress:
        """Return where other agents of the job send and fetch shards."""
        return await self._guarded(self._started().mirroring.address())

    async def request_mirror(self, generation: int) -> None:
        """Request that all ranks pin the next set for mirrors. The leading rank, on this node, gets the request."""
        await self._guarded(self._send_to_ranks(generation, MirrorDue(), rank=0))

    async def send_mirror(
        self, generation: int, step: int, ranks: Sequence[int], to: records.TransferAddress, bytes_per_s: float | None
    ) -> records.MirrorSent:
        """Send the shards that ranks pinned for mirrors to another agent."""
        return await self._guarded(self._started().mirroring.send(generation, step, ranks, to, bytes_per_s))

    async def retain_mirror(self, generation: int, step: int) -> None:
        """Retain this set as mirrored; release every other mirrored set."""
        self._started().mirroring.retain(generation, step)

    async def release_mirrors(self, generation: int, step: int) -> None:
        """Release every mirrored set but this one."""
        self._started().mirroring.release_others(generation, step)

    async def save_checkpoint(
        self, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str], base: str
    ) -> records.SavedShards:
        """Write pinned snapshots below `uri`; return when the supervisor has all step rows up to then."""
        try:
            saved = await self._guarded(self._started().save_checkpoint(generation, step, ranks, uri, differing, base))
        except AgentFailedError:
            await self._wait_for_delivery()
            raise
        await self._wait_for_delivery()
        return saved

    async def finish_checkpoint(
        self, uri: str, parts: Sequence[dict[str, Any]], manifest: records.Manifest
    ) -> records.Manifest:
        """Write the metadata of a checkpoint and, last, its manifest."""
        return await self._guarded(self._started().finish_checkpoint(uri, parts, manifest))

    async def scan_checkpoints(self) -> records.CheckpointScan:
        """Find the job's checkpoints in durable storage."""
        try:
            return await async_storage.call_within(STORAGE_TIMEOUT_S, self._started().checkpoints.scan)
        except OSError as error:
            self._fail(storage_failure(error))

    async def remove_checkpoint(self, uri: str) -> None:
        """Remove a checkpoint from durable storage."""
        try:
            await async_storage.call_within(REMOVAL_TIMEOUT_S, folders.remove_checkpoint, uri)
        except OSError as error:
            self._fail(storage_failure(error))

    async def status(self) -> records.AgentStatus:
        """Return the state of this agent. Report soon: a supervisor that has just started waits for a sign of life."""
        host = self._started()
        if self._link is not None:
            self._link.wake()
        return records.AgentStatus(
            generation=host.generation,
            running=host.report().running,
            prepared=host.next_ranks.generation,
            pids=host.pids(),
            boot_id=host.outbox.boot_id,
            unsent=len(host.outbox),
            stale=host.fence.stale_calls,
            messages=tuple(host.messages_for_replay()),
            dataset=host.dataset,
            snapshot_bytes=host.buffers.size_bytes(),
            mirrored=host.buffers.mirrored,
            mirror_bytes=host.mirroring.store.size_bytes(),
            log_dir=str(host.log_files.folder),
            is_terminating=host.is_terminating,
            secrets_version=self._secrets_version,
        )

    async def dump_stacks(self) -> dict[int, records.RankStack]:
        """Return rank → the stack of each of its threads."""
        return dict(await self._started().dump_stacks()) if self._host is not None else {}

    async def inspect_ranks(self) -> dict[int, records.RankInspection]:
        """Return rank → its position, stacks and latest collectives."""
        return dict(await self._started().inspect_ranks()) if self._host is not None else {}

    async def upload_evidence(self, generation: int, incident: str) -> int:
        """Upload the evidence of a generation's end and return its size in bytes, 0 if there is none."""
        if self._host is None:
            return 0
        return await self._guarded(self._host.evidence.upload(generation, incident))

    async def remove_evidence(self, incidents: Sequence[str]) -> None:
        """Remove the evidence of old incidents from durable storage."""
        await self._guarded(asyncio.to_thread(self._started().evidence.remove, incidents))

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> records.LogPiece:
        """Read bytes of a rank's `stdout` or `stderr` from `offset`."""
        missing = records.LogPiece(None, offset, 0)
        if self._host is None:  # the job has ended on this node, and its logs are archived
            return missing
        try:
            path = self._host.log_files.rank(generation, rank, stream)
            return logs.read(path, offset, limit, self._host.redactor)
        except FileNotFoundError:
            return missing

    async def start_command(self, request: records.CommandRequest) -> records.CommandStarted:
        """Run a command next to a rank, with the rank's variables and folder."""
        host = self._host
        if host is None:
            self._fail(records.AgentFailure(records.AgentErrorKind.COMMAND, "the job has ended on this node"))
        return await self._guarded(
            host.exec_sessions.start(host.acquire_zygote(), request, host.rank_places.get(request.rank))
        )

    async def read_command(self, key: str, limit_bytes: int, wait_s: float) -> records.CommandOutput:
        """Read the output of a command since the last read, and its exit."""
        if self._host is None:
            return records.CommandOutput(ended=records.CommandExit(-9, "ended"))
        return await self._guarded(self._host.exec_sessions.read(key, limit_bytes, wait_s))

    async def kill_command(self, key: str) -> None:
        """Kill a command with every process that it started."""
        if self._host is not None:
            self._host.exec_sessions.kill(key)

    async def inject_fault(self, do: str) -> None:
        """Inject a planned fault on this node."""
        self._started().inject_fault(do)

    async def shutdown(self) -> None:
        """End every process of the job on this node. The caller kills the actor when this returns."""
        for task in self._tasks:
            task.cancel()
        if self._link is not None:
            self._link.close()
        if self._monitor is not None:
            self._monitor.close()
        await self._pipeline.cancel()
        if self._host is not None:
            await self._host.close()
            self._host = None

    # ------------------------------------------------------------ internals

    def _started(self) -> JobHost:
        """Return the host of the job; the first call creates it and starts the background tasks."""
        if self._host is None:
            link = self._link = SupervisorLink(self._config)
            host = self._host = JobHost(self._config, link.authorize_fault, link.wake, self._spare_zygote())
            folders = (host.scratch, host.log_files.folder)
            monitor = self._monitor = NodeMonitor(self._config.node_name, folders, host.gpus, host.note)
            loop = asyncio.get_running_loop()
            work = (link.send_reports(host), monitor.run(), link.send_heartbeats())
            self._tasks = [loop.create_task(each) for each in work]
        return self._host

    def _spare_zygote(self) -> ZygoteLink | None:
        """Return a zygote that was started before the job came. Only a standby agent has one."""
        return None

    async def _run_preflight(self, request: records.PreflightRequest) -> records.PreflightReport:
        host = self._started()
        if host.generation:  # the memory that the job uses here is part of its reservation
            request = replace(request, memory_bytes=0)
        return await self._preflight.check_job(host.acquire_zygote(), host.scratch, request)

    async def _start_store(self, generation: int, is_next: bool) -> tuple[str, int]:
        return self._started().start_store(generation, is_next=is_next)

    async def _send_to_ranks(self, generation: int, message: AgentRequest, rank: int | None = None) -> None:
        self._started().send_to_ranks(generation, message, rank)

    async def _wait_for_delivery(self) -> None:
        host = self._started()
        if self._link is not None:
            await self._link.wait_for_delivery(host)

    async def _set_up(self, work: Awaitable[_Result]) -> _Result:
        """Await a part of the node's setup."""
        log_dir = str(self._started().log_files.folder)
        return await guarded(
            work, lambda error: classify_setup_error(error, log_dir), self._config.node_name, self._hide
        )

    async def _guarded(self, work: Awaitable[_Result]) -> _Result:
        """Await any other work."""
        return await guarded(work, classify_error, self._config.node_name, self._hide)

    def _fail(self, failure: records.AgentFailure) -> NoReturn:
        raise failed(failure, self._config.node_name, self._hide)

    def _hide(self, text: str) -> str:
        return self._host.redactor.hide(text) if self._host is not None else text


def _token_sources(sources: records.DataSources) -> records.TokenSources:
    assert sources.tokens is not None, "sources are token files or a recipe"
    return sources.tokens


NodeAgentActor = expose(NodeAgent)
