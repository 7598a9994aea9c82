"""The node agent: the Ray actor around a `JobHost`.

This file, `standby.py` and `workers/data/prepare/ray_pipeline.py` are the only ones of the nodes that import ray.

It holds no devices, reports news at once and beats every second, and is found by name.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import ray
from ray.exceptions import RayError

from regroup.workers.agent import prepared_data, token_data
from regroup.workers.agent.failures import classify_error, classify_setup_error, guarded, storage_failure
from regroup.workers.agent.health import resource_pressure
from regroup.workers.agent.health.clock_jump import WallClock
from regroup.workers.agent.health.gpu_errors import GpuErrors
from regroup.workers.agent.health.preflight import Preflight
from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.ranks import logs
from regroup.workers.contract import agent_records as records
from regroup.workers.contract import messages
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_wire import expose
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import from_json, to_json
from regroup.workers.data.prepare.ray_pipeline import Pipeline
from regroup.workers.os import procfs
from regroup.workers.storage import async_storage, fsspec_storage
from regroup.workers.zygote.client import ZygoteLink

_Result = TypeVar("_Result")
BEAT_S = 1.0
LOOK_S = 10.0
REPORT_TIMEOUT_S = 5.0
FORGET_S = 15.0
"""A supervisor that does not answer for so long is looked up anew. Looking it up stops everything here until the
cluster's head has answered: on a bad network that may be seconds, in which no sign of life would be sent."""
STORAGE_S, REMOVAL_S = 30.0, 300.0
"""Storage that has not answered by then does not answer: less than a supervisor waits for its agent."""
NAMESPACE = "regroup"


class NodeAgent(AgentApi):
    """One job on one node. `NodeAgentActor` is the Ray actor of it: its methods take and return plain data."""

    def __init__(self, config: dict[str, Any]) -> None:
        known = from_json(config)
        assert isinstance(known, AgentConfig)
        self._config = known
        self._host: JobHost | None = None
        self._pipeline = Pipeline()
        self._preflight = Preflight()
        self._driver_errors = GpuErrors()
        self._supervisor: Any = None
        self._heartbeats = HeartbeatSender()
        self._heard_s = procfs.boottime_s()
        self._news = asyncio.Event()
        self._reported = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"regroup agent {self._config.job_name} on {self._config.node_name}"

    async def install_environment(self) -> None:
        """Install the packages that the job's Python needs."""
        await self._set_up(self._started().python.made())

    async def start_zygote(self) -> records.NodeDescription:
        """Start the zygote, or wait until it is ready."""
        return await self._set_up(self._started().prepare())

    async def run_preflight(self, request: records.PreflightRequest) -> records.PreflightReport:
        """Check this node before ranks start on it."""
        return await self._guarded(self._check(request))

    async def check_storage(self) -> None:
        """Check that this node can write to durable storage."""
        uri = self._config.storage_uri
        await self._guarded(async_storage.call_within(STORAGE_S, fsspec_storage.check_writable, uri))

    async def list_sources(self, sources: records.DataSources) -> records.SourceListing:
        """List the job's data as this node sees it."""
        host = self._started()
        if sources.recipe is not None:
            call = (self._config, host.scratch, host.python.place, sources.recipe)
            return await self._guarded(asyncio.to_thread(prepared_data.list_sources, *call))
        return await self._guarded(token_data.list_sources(host.zygote(), sources.tokens or {}))

    async def prepare_data(self, sources: records.DataSources) -> records.Dataset:
        """Make token files or records of the sources, once."""
        host = self._started()
        if sources.recipe is None:
            work = token_data.prepare(host.zygote(), self._config, host.scratch, sources.tokens or {}, host.note)
            return await self._guarded(work)
        places = {
            node: {**plain(place), "reservations": sources.reservations[node]} for node, place in sources.places.items()
        }
        order = {"data": sources.recipe, "datasets_uri": self._config.datasets_uri, "agent": to_json(self._config)}
        made = await self._guarded(self._pipeline.run({**order, "places": places}, host.note))
        if (error := made.get("error")) is not None:
            self._fail(
                records.AgentFailure(records.AgentErrorKind(error["kind"]), error["message"], error["traceback"])
            )
        return made

    async def fetch_data(self, prepared: records.Dataset) -> records.Dataset:
        """Make prepared data readable on this node."""
        host = self._started()
        localise = prepared_data.localise if prepared.get("kind") == "records" else token_data.localise
        try:
            host.dataset = await self._guarded(asyncio.to_thread(localise, self._config, host.scratch, prepared))
        except AgentFailedError:
            host.dataset = {}
            raise
        return host.dataset

    async def start_store(self, generation: int) -> records.StoreAddress:
        """Start the generation's rendezvous store."""
        return records.StoreAddress(*self._started().open_store(generation))

    async def form_ranks(
        self, joins: Sequence[messages.Join], devices: Sequence[int], holders: dict[int, records.TransferAddress]
    ) -> None:
        """Fork the generation's ranks on this node."""
        await self._guarded(self._started().form(joins, devices, holders))

    async def stop_ranks(self, generation: int, reason: str, save: bool) -> None:
        """Ask the ranks to end at a step that they agree on."""
        await self._guarded(self._tell(generation, messages.Stop(reason, save)))

    async def kill_ranks(self, generation: int) -> records.DeathProof:
        """Kill the ranks of every generation up to this one, with proof of death."""
        stuck: Sequence[int] = ()
        with contextlib.suppress(AgentFailedError):
            stuck = await self._guarded(self._started().end(generation))
        return records.DeathProof(tuple(stuck), self._started().report())

    async def list_shards(self) -> list[messages.VerifiedShard]:
        """List the verified shards of training state in this node's memory."""
        host = self._started()
        own, held = await asyncio.to_thread(lambda: (host.buffers.holdings(), host.mirroring.held.holdings()))
        for bad in host.buffers.damaged:
            message = f"rank {bad.rank}'s snapshot of step {bad.step} fails its checksum: nothing is restored from it"
            place = {"rank": bad.rank, "step": bad.step, "node": host.config.node_name}
            host.note("snapshot_damaged", {**place, "message": message})
        return [*own, *held]

    async def release_restore_source(self, has_mirrors: bool) -> None:
        """Release the shards that the running ranks were restored from."""
        if not has_mirrors:
            self._started().mirroring.keep(0, 0)
        self._started().buffers.give_up_source()

    async def transfer_address(self) -> records.TransferAddress:
        """Return where other agents of the job send and fetch shards."""
        return await self._guarded(self._started().mirroring.address())

    async def request_mirror(self, generation: int) -> None:
        """Have the leading rank make all ranks hold the next set for mirrors."""
        await self._guarded(self._tell(generation, messages.MirrorDue(), rank=0))

    async def send_mirror(
        self, generation: int, step: int, ranks: Sequence[int], to: records.TransferAddress, bytes_per_s: float | None
    ) -> records.MirrorSent:
        """Send the shards that ranks hold pinned for mirrors to another agent."""
        return await self._guarded(self._started().mirroring.send(generation, step, ranks, to, bytes_per_s))

    async def retain_mirror(self, generation: int, step: int) -> None:
        """Retain this set as mirrored; release every other mirrored set."""
        self._started().mirroring.keep(generation, step)

    async def release_mirrors(self, generation: int, step: int) -> None:
        """Release every mirrored set but this one."""
        self._started().mirroring.make_room(generation, step)

    async def save_checkpoint(self, generation: int, step: int, ranks: Sequence[int], uri: str) -> records.SavedShards:
        """Write pinned snapshots below `uri`; return when the supervisor has all step rows up to then."""
        try:
            saved = await self._guarded(self._started().save(generation, step, ranks, uri))
        except AgentFailedError:
            await self._told()
            raise
        await self._told()
        return saved

    async def finish_checkpoint(
        self, uri: str, parts: Sequence[dict[str, Any]], manifest: records.Manifest
    ) -> records.Manifest:
        """Write the metadata of a checkpoint and, last, its manifest."""
        return await self._guarded(self._started().finish_checkpoint(uri, parts, manifest))

    async def scan_checkpoints(self) -> records.CheckpointScan:
        """Find the job's checkpoints in durable storage."""
        try:
            return await async_storage.call_within(STORAGE_S, self._started().saving.manifests)
        except OSError as error:
            self._fail(storage_failure(error))

    async def remove_checkpoint(self, uri: str) -> None:
        """Remove a checkpoint from durable storage."""
        try:
            await async_storage.call_within(REMOVAL_S, fsspec_storage.remove, uri)
        except OSError as error:
            self._fail(storage_failure(error))

    async def status(self) -> records.AgentStatus:
        """Return the state of this agent."""
        host = self._started()
        return records.AgentStatus(
            generation=host.generation,
            running=host.report().running,
            pids=host.pids(),
            boot_id=host.outbox.boot_id,
            unsent=len(host.outbox),
            stale=host.stale,
            messages=tuple(host.said()),
            dataset=host.dataset,
            snapshot_bytes=host.buffers.size_bytes(),
            mirrored=host.buffers.mirrored,
            mirror_bytes=host.mirroring.held.size_bytes(),
            log_dir=str(host.log_dir),
        )

    async def dump_stacks(self) -> dict[int, records.RankStack]:
        """Return rank → where every thread of it is now."""
        return dict(await self._started().stacks()) if self._host is not None else {}

    async def inspect_ranks(self) -> dict[int, records.RankInspection]:
        """Return rank → where it is and which collectives it entered last."""
        return dict(await self._started().look()) if self._host is not None else {}

    async def upload_evidence(self, generation: int, incident: str) -> int:
        """Upload what is noted of a generation's end; returns bytes, 0 if nothing is noted."""
        if self._host is None:
            return 0
        return await self._guarded(self._host.evidence.leave(generation, incident))

    async def remove_evidence(self, incidents: Sequence[str]) -> None:
        """Remove the evidence of old incidents from durable storage."""
        await self._guarded(asyncio.to_thread(self._started().evidence.remove, incidents))

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> records.LogPiece:
        """Read bytes of a rank's `stdout` or `stderr` from `offset`."""
        nothing = records.LogPiece(None, offset, 0)
        if self._host is None:  # the job is over here, and its logs are archived
            return nothing
        try:
            return logs.read(self._host.log_path(generation, rank, stream), offset, limit)
        except FileNotFoundError:
            return nothing

    async def start_command(self, request: records.CommandRequest) -> records.CommandStarted:
        """Run a command beside a rank, with its variables and folder."""
        host = self._host
        if host is None:
            self._fail(records.AgentFailure(records.AgentErrorKind.COMMAND, "the job is over on this node"))
        return await self._guarded(host.executions.start(host.zygote(), request, host.places.get(request.rank)))

    async def read_command(self, key: str, limit_bytes: int, wait_s: float) -> records.CommandOutput:
        """Read what a command wrote since it was last read, and how it ended."""
        if self._host is None:
            return records.CommandOutput(ended=records.CommandExit(-9, "ended"))
        return await self._guarded(self._host.executions.read(key, limit_bytes, wait_s))

    async def kill_command(self, key: str) -> None:
        """Kill a command with every process that it started."""
        if self._host is not None:
            self._host.executions.end(key)

    async def inject_fault(self, do: str) -> None:
        """Inject a planned fault on this node."""
        self._started().inject(do)

    async def shutdown(self) -> None:
        """End every process of the job here; the caller kills the actor when this returns."""
        for task in self._tasks:
            task.cancel()
        self._heartbeats.close()
        self._driver_errors.close()
        await self._pipeline.cancel()
        if self._host is not None:
            await self._host.close()
            self._host = None

    # ------------------------------------------------------------ inside

    def _started(self) -> JobHost:
        if self._host is None:
            procfs.prefer_for_oom(0)
            self._host = JobHost(self._config, self._grant_fault, self._news.set, self._spare_zygote())
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(work) for work in (self._beat(), self._look(), self._heartbeats.send())]
        return self._host

    def _spare_zygote(self) -> ZygoteLink | None:
        """A zygote that stands ready for this job; an agent that was started for it has none."""
        return None

    async def _beat(self) -> None:
        host = self._started()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), BEAT_S)
            self._news.clear()
            await self._report(host)
            host.trim_logs()
            host.renew_lease(self._heard_s)

    async def _look(self) -> None:
        """Apart from the beat: a disk or a driver that hangs must not make the node a lost one."""
        host, well, clock, errors = (
            self._started(),
            resource_pressure.ResourcePressure(),
            WallClock(),
            self._driver_errors,
        )
        while True:
            await errors.pause(LOOK_S)
            if jumped_s := clock.jumped_s():
                message = f"its clock was set {'forward' if jumped_s > 0 else 'back'} by {abs(jumped_s):.0f} s"
                host.note("clock_set", {"node": self._config.node_name, "seconds": jumped_s, "message": message})
            gpus = [int(env["REGROUP_DEVICE_INDEX"]) for join, env in host.places.values() if join.device == "cuda"]
            for error in errors.heard(gpus):
                host.note("xid", {"node": self._config.node_name, "message": error.message})
            with contextlib.suppress(OSError):
                seen = await asyncio.to_thread(resource_pressure.read, (host.scratch, host.log_dir), gpus)
                for what, message in well.changes(errors.added_to(seen)):
                    host.note("condition", {"node": self._config.node_name, "what": what, "message": message})

    async def _report(self, host: JobHost) -> None:
        report = host.report()
        try:
            supervisor = self._supervisor or ray.get_actor(self._config.supervisor, namespace=NAMESPACE)
            answer: Any = supervisor.report.remote(to_json(report))
            reply: dict[str, Any] = await asyncio.wait_for(answer, REPORT_TIMEOUT_S)
        except (RayError, ValueError, TimeoutError) as error:  # the outbox keeps what it has
            if not isinstance(error, TimeoutError) or procfs.boottime_s() - self._heard_s > FORGET_S:
                self._supervisor = None  # it restarts, or the cluster is away
            await asyncio.sleep(0.1)
            return
        self._supervisor = supervisor
        self._heartbeats.aim(self._config.node_id, reply["heartbeats"])
        self._heard_s = procfs.boottime_s()
        host.outbox.sent(reply["boot_id"], reply["received"], reply["durable"])
        self._reported.set()
        if len(report.messages) and host.outbox.batch():
            self._news.set()

    async def _check(self, request: records.PreflightRequest) -> records.PreflightReport:
        host = self._started()
        if host.generation:  # the memory that the job uses here is part of what was reserved for it
            request = replace(request, memory_bytes=0)
        return await self._preflight.before_ranks(host.zygote(), host.scratch, request)

    async def _told(self) -> None:
        """Until the supervisor has all that was said so far.

        A checkpoint outlives this agent: steps that it holds and nobody has heard of would be missing for ever.
        """
        outbox = self._started().outbox
        wanted = outbox.last
        while not outbox.is_sent(wanted):
            self._reported.clear()
            self._news.set()
            await self._reported.wait()

    async def _grant_fault(self, due: messages.FaultDue) -> bool:
        while True:  # the rank waits for a word, and there may be no supervisor to say one
            with contextlib.suppress(RayError, ValueError):
                supervisor = ray.get_actor(self._config.supervisor, namespace=NAMESPACE)
                answer: Any = supervisor.authorize_fault.remote(due.index, due.do)
                return bool(await answer)
            await asyncio.sleep(0.1)

    async def _tell(self, generation: int, message: messages.AgentRequest, rank: int | None = None) -> None:
        self._started().tell(generation, message, rank)

    async def _set_up(self, work: Awaitable[_Result]) -> _Result:
        """Await work that gets this node ready for the job."""
        log_dir = str(self._started().log_dir)
        return await guarded(work, lambda error: classify_setup_error(error, log_dir), self._config.node_name)

    async def _guarded(self, work: Awaitable[_Result]) -> _Result:
        """Await any other work."""
        return await guarded(work, classify_error, self._config.node_name)

    def _fail(self, failure: records.AgentFailure) -> NoReturn:
        raise AgentFailedError(replace(failure, node_name=self._config.node_name))


NodeAgentActor = expose(NodeAgent)
