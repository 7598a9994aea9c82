"""The node agent: the Ray actor around a `JobHost`.

This file, `standby.py` and `workers/data/prepare/ray_pipeline.py` are the only ones of the nodes that import ray.

It holds no devices, reports news at once and beats every second, and is found by name.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import ray
from ray.exceptions import RayError

from regroup.workers.agent import prepared_data, token_data
from regroup.workers.agent.health import resource_pressure
from regroup.workers.agent.health.clock_jump import WallClock
from regroup.workers.agent.health.gpu_errors import GpuErrors
from regroup.workers.agent.health.preflight import Preflight
from regroup.workers.agent.heartbeat_sender import HeartbeatSender
from regroup.workers.agent.job_host import JobHost, StaleGeneration
from regroup.workers.agent.ranks import logs
from regroup.workers.agent.snapshots.shard_transfer import NoRoomError, TransferError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.error_classes import DataError
from regroup.workers.contract.messages import FaultDue, Join, MirrorDue, Stop, Told, from_json, to_json
from regroup.workers.data.prepare.ray_pipeline import Pipeline
from regroup.workers.environment.code_archive import CodeError
from regroup.workers.environment.interpreter import PythonUnfit
from regroup.workers.os import procfs
from regroup.workers.os.node_facts import SecretMissing
from regroup.workers.storage import async_storage, fsspec_storage
from regroup.workers.zygote.client import TaskFailed, ZygoteDied, ZygoteLink, ZygoteRefused

BEAT_S = 1.0
LOOK_S = 10.0
REPORT_TIMEOUT_S = 5.0
FORGET_S = 15.0
"""A supervisor that does not answer for so long is looked up anew. Looking it up stops everything here until the
cluster's head has answered: on a bad network that may be seconds, in which no sign of life would be sent."""
STORAGE_S, REMOVAL_S = 30.0, 300.0
"""Storage that has not answered by then does not answer: less than a supervisor waits for its agent."""
NAMESPACE = "regroup"


class NodeAgent:
    """One job on one node. Calls return plain data; what a person caused comes back as `{"error": …}`."""

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

    async def make_environment(self) -> dict[str, Any]:
        """Install what the job's Python needs, which may take long. Errors: `environment`, `secret`."""
        return await self._prepared(self._started().python.made())

    async def prepare(self) -> dict[str, Any]:
        """Bring the zygote up. Errors: `code`, `preload`, `secret`, `environment`."""
        return await self._prepared(self._started().prepare())

    async def _prepared(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        try:
            return await work
        except ZygoteRefused as error:
            return {"error": {"kind": "preload", "message": str(error), "traceback": error.traceback}}
        except CodeError as error:
            return {"error": {"kind": "code", "message": str(error), "traceback": ""}}
        except SecretMissing as error:
            return {"error": {"kind": "secret", "message": str(error), "traceback": ""}}
        except PythonUnfit as error:
            return {"error": {"kind": "environment", "message": str(error), "traceback": error.details}}
        except ZygoteDied as error:
            message = f"{error}; its log: {self._started().log_dir}"
            return {"error": {"kind": "environment", "message": message, "traceback": ""}}

    async def preflight(self, order: dict[str, Any]) -> dict[str, Any]:
        """Check this node before ranks start here: what is wrong, as `failed`, and `notes`. Error: `ZygoteDied`."""
        return await self._guarded(self._checked(order))

    async def check_storage(self) -> dict[str, Any]:
        """Prove that durable storage can be written from this node. Error: `storage`."""
        return await self._guarded(
            async_storage.call_within(STORAGE_S, fsspec_storage.check_writable, self._config.storage_uri)
        )

    async def list_sources(self, sources: dict[str, Any]) -> dict[str, Any]:
        """What this node sees of the job's data, so that nodes can be compared. Error: `data`."""
        host = self._started()
        if recipe := sources.get("prepare"):
            look = (self._config, host.scratch, host.python.place, recipe)
            return await self._guarded(asyncio.to_thread(prepared_data.list_sources, *look))
        return await self._guarded(token_data.list_sources(host.zygote(), sources))

    async def prepare_data(self, sources: dict[str, Any]) -> dict[str, Any]:
        """Turn sources into token files or records once; returns where. Error: `data`."""
        host = self._started()
        if recipe := sources.get("prepare"):
            order = {"data": recipe, "datasets_uri": self._config.datasets_uri, "agent": to_json(self._config)}
            return await self._guarded(self._pipeline.run({**order, "places": sources["places"]}, host.note))
        return await self._guarded(token_data.prepare(host.zygote(), self._config, host.scratch, sources, host.note))

    async def localise_data(self, made: dict[str, Any]) -> dict[str, Any]:
        """Make prepared data readable on this node; returns its paths here. Error: `data`."""
        host = self._started()
        localise = prepared_data.localise if made.get("kind") == "records" else token_data.localise
        reply = await self._guarded(asyncio.to_thread(localise, self._config, host.scratch, made))
        host.dataset = {} if "error" in reply else reply
        return reply

    async def open_store(self, generation: int) -> dict[str, Any]:
        """Start the generation's rendezvous store; returns `host` and `port`."""
        address, port = self._started().open_store(generation)
        return {"host": address, "port": port}

    async def form(
        self, joins: list[dict[str, Any]], devices: list[int], holders: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Fork the generation's ranks on this node, those of `holders` with state from another node's memory. Errors:
        `storage` (the checkpoint), `exchange` (the other node), `stale`."""
        orders: list[Join] = []
        for item in joins:
            order = from_json(item)
            assert isinstance(order, Join)
            orders.append(order)
        return await self._guarded(self._started().form(orders, devices, holders))

    async def give_up_source(self, mirrors: bool) -> None:
        """Ranks have a whole set of their own: what others wrote, and they were restored from, is needed no more; nor
        are mirrors, where the job has none any more."""
        if not mirrors:
            self._started().mirroring.keep(0, 0)
        self._started().buffers.give_up_source()

    async def end(self, generation: int) -> dict[str, Any]:
        """Kill the ranks of every generation up to this one, with proof; returns it with all they still said."""
        proof = await self._guarded(self._started().end(generation))
        return {**proof, "report": to_json(self._started().report())}

    async def stop(self, generation: int, reason: str, save: bool) -> dict[str, Any]:
        """Ask the ranks to end at an agreed step; `save`: and to hold that step for a checkpoint. Error: `stale`."""
        return await self._guarded(self._tell(generation, Stop(reason, save)))

    async def holdings(self) -> list[dict[str, Any]]:
        """Verified shards of training state in this node's memory, its own ranks' and those it holds for others."""
        host = self._started()
        own, held = await asyncio.to_thread(lambda: (host.buffers.holdings(), host.mirroring.held.holdings()))
        for bad in host.buffers.damaged:
            message = f"rank {bad.rank}'s snapshot of step {bad.step} fails its checksum: nothing is restored from it"
            place = {"rank": bad.rank, "step": bad.step, "node": host.config.node_name}
            host.note("snapshot_damaged", {**place, "message": message})
        return [to_json(holding) for holding in (*own, *held)]

    async def exchange(self) -> dict[str, Any]:
        """Where other agents of the job bring and get shards: `host`, `port`, `token`. Error: `OSError`."""
        return await self._guarded(self._started().mirroring.address())

    async def ask_mirror(self, generation: int) -> dict[str, Any]:
        """Let the leading rank, which is here, have all ranks hold the next set for mirrors. Error: `stale`."""
        return await self._guarded(self._tell(generation, MirrorDue(), rank=0))

    async def mirror(
        self, generation: int, step: int, ranks: list[int], to: dict[str, Any], bytes_per_s: float | None
    ) -> dict[str, Any]:
        """Send what ranks hold pinned for mirrors to another agent; returns `bytes`, `seconds`. Errors: `exchange`, and
        `no_room` where that one is short of memory."""
        return await self._guarded(self._started().mirroring.send(generation, step, ranks, to, bytes_per_s))

    async def keep_mirror(self, generation: int, step: int) -> None:
        """All mirrors hold this set whole: keep it, and give up what was held before."""
        self._started().mirroring.keep(generation, step)

    async def make_room(self, generation: int, step: int) -> None:
        """Memory is short: give up what is held as mirrors before this set comes."""
        self._started().mirroring.make_room(generation, step)

    async def save(self, generation: int, step: int, ranks: list[int], uri: str) -> dict[str, Any]:
        """Write pinned snapshots to durable storage, and tell the supervisor of all their steps. Error: `storage`."""
        saved = await self._guarded(self._started().save(generation, step, ranks, uri))
        await self._told()
        return saved

    async def finish_checkpoint(self, uri: str, parts: list[Any], manifest: dict[str, Any]) -> dict[str, Any]:
        """Write metadata and, last, the manifest. Error: `storage`."""
        return await self._guarded(self._started().finish_checkpoint(uri, parts, manifest))

    async def manifests(self) -> list[dict[str, Any]]:
        """Every finished checkpoint of this job, by scanning."""
        return await async_storage.call_within(STORAGE_S, self._started().saving.manifests)

    async def remove_checkpoint(self, uri: str) -> None:
        """Remove a checkpoint that retention gave up."""
        await async_storage.call_within(REMOVAL_S, fsspec_storage.remove, uri)

    async def status(self) -> dict[str, Any]:
        """Who lives here, for re-adoption, people and tests."""
        host = self._started()
        return {
            "generation": host.generation,
            "running": list(host.report().running),
            "pids": host.pids(),
            "boot_id": host.outbox.boot_id,
            "unsent": len(host.outbox),
            "stale": host.stale,
            "said": host.said(),
            "dataset": host.dataset,
            "snapshot_bytes": host.buffers.size_bytes(),
            "mirrored": host.buffers.mirrored,
            "mirror_bytes": host.mirroring.held.size_bytes(),
            "log_dir": str(host.log_dir),
        }

    async def stacks(self) -> dict[str, Any]:
        """Where every thread of every rank here is now."""
        return await self._started().stacks() if self._host is not None else {}

    async def look(self) -> dict[str, Any]:
        """Likewise, with the collectives that each rank entered last; kept as evidence of how the generation ends."""
        return await self._started().look() if self._host is not None else {}

    async def leave_evidence(self, generation: int, incident: str) -> dict[str, Any]:
        """Put what is known of a generation's end into durable storage; returns `size_bytes`. Error: `storage`."""
        if self._host is None:
            return {"size_bytes": 0}
        return await self._guarded(self._host.evidence.leave(generation, incident))

    async def remove_evidence(self, incidents: list[str]) -> dict[str, Any]:
        """Remove what was left of incidents that are given up. Errors: those of storage."""
        return await self._guarded(asyncio.to_thread(self._started().evidence.remove, incidents))

    async def execute(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a command in the place of a rank, beside the generation. Errors: `ExecutionRefused`, `ZygoteDied`."""
        if self._host is None:
            return {"error": {"kind": "ExecutionRefused", "message": "the job is over on this node", "traceback": ""}}
        host = self._host
        return await self._guarded(host.executions.start(host.zygote(), order, host.places.get(order["rank"])))

    async def execution(self, key: str, limit_bytes: int, wait_s: float) -> dict[str, Any]:
        """What a command wrote since it was last asked for, and how it ended. Error: `ExecutionRefused`."""
        if self._host is None:
            return {"pieces": [], "ended": {"code": -9, "why": "ended", "stuck": []}}
        return await self._guarded(self._host.executions.read(key, limit_bytes, wait_s))

    async def end_execution(self, key: str) -> None:
        """End a command with all that it started."""
        if self._host is not None:
            self._host.executions.end(key)

    async def strike(self, do: str) -> None:
        """Carry out a rehearsed fault here."""
        self._started().strike(do)

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any]:
        """Bytes of a rank's `stdout` or `stderr` from `offset`, with their place and the file's size; `data` is None if
        not here."""
        nothing: dict[str, Any] = {"data": None, "offset": offset, "size": 0}
        if self._host is None:  # over here, and archived
            return nothing
        try:
            return logs.read(self._host.log_path(generation, rank, stream), offset, limit)
        except FileNotFoundError:
            return nothing

    async def shutdown(self) -> None:
        """End everything here; the caller kills the actor when this has returned."""
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

    async def _checked(self, order: dict[str, Any]) -> dict[str, Any]:
        host = self._started()
        if host.generation:  # what the job has here already is part of what it was promised
            order = {**order, "memory_bytes": 0}
        return (await self._preflight.before_ranks(host.zygote(), host.scratch, order)).to_json()

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

    async def _grant_fault(self, due: FaultDue) -> bool:
        while True:  # the rank waits for a word, and there may be no supervisor to say one
            with contextlib.suppress(RayError, ValueError):
                supervisor = ray.get_actor(self._config.supervisor, namespace=NAMESPACE)
                answer: Any = supervisor.grant_fault.remote(due.index, due.do)
                return bool(await answer)
            await asyncio.sleep(0.1)

    async def _tell(self, generation: int, message: Told, rank: int | None = None) -> None:
        self._started().tell(generation, message, rank)

    async def _guarded(self, work: Awaitable[dict[str, Any] | None]) -> dict[str, Any]:
        try:
            return (await work) or {}
        except StaleGeneration as error:
            return {"error": {"kind": "stale", "message": str(error), "traceback": ""}}
        except DataError as error:
            return {"error": {"kind": "data", "message": str(error), "traceback": ""}}
        except fsspec_storage.StorageError as error:
            return {"error": {"kind": "storage", "message": str(error), "traceback": ""}}
        except TransferError as error:
            kind = "no_room" if isinstance(error, NoRoomError) else "exchange"
            return {"error": {"kind": kind, "message": str(error), "traceback": ""}}
        except TaskFailed as error:
            return {"error": {"kind": error.kind, "message": error.error, "traceback": error.traceback}}
        except (OSError, LookupError, ZygoteDied) as error:
            return {"error": {"kind": type(error).__name__, "message": str(error), "traceback": ""}}
