"""A job on simulated nodes: its agents, its controller and the process of its supervisor."""

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

from benchmarks.cluster.processes import cpu_seconds
from benchmarks.control_plane.frames import CallFailedError, Peer
from benchmarks.control_plane.simulated_agent import SimulatedAgent
from benchmarks.control_plane.step_clock import STEP_S, StepClock
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import Intents, SupervisorStatus, SyncReply, SyncRequest
from regroup.service.spec.job import parse_spec
from regroup.workers.contract.heartbeat import EVERY_S, Listener
from regroup.workers.contract.messages import from_json

RANKS_PER_NODE = 8
_SLICES = 25
"""Groups of agents whose heartbeats are sent one after the other, so that they are spread over time."""
_START_TIMEOUT_S = 180.0


class SimulatedJob:
    """The surroundings of one supervisor."""

    def __init__(self, nodes: int, folder: Path) -> None:
        """Initialize. Everything is stored below `folder`."""
        self.nodes = nodes
        self.agents: dict[str, SimulatedAgent] = {}
        self.orders: dict[str, dict[str, float]] = {}
        """Kind of order → node → monotonic time at which it arrived."""
        self.steps = StepClock()
        self.status = SupervisorStatus()
        self.causes: dict[str, str] = {}
        """Incident → its cause, of all incidents."""
        self.synced = asyncio.Event()
        """Set after each sync."""
        self._folder, self._peer = folder, Peer(self._answer)
        self._nodes_json: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._acked, self._boot_id = 0, ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["SimulatedJob"]:
        """Run the job; end its processes afterwards."""
        (self._folder / "records").mkdir()
        payload = _payload(self.nodes)
        assignments = tuple(map(NodeAssignment.from_json, payload["nodes"]))
        self._nodes_json = SyncRequest(Intents(nodes=assignments)).to_json()["intents"]["nodes"]
        (self._folder / "payload.json").write_text(json.dumps(payload))
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(self._connect, str(self._folder / "socket"))
        try:
            self.start_supervisor()
            work = (self._sync_until_cancelled(), self._send_heartbeats(), self._run_steps())
            self._tasks += [loop.create_task(each) for each in work]
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.kill_supervisor()
            server.close()

    def start_supervisor(self) -> None:
        """Start the supervisor. It connects by itself."""
        module = "benchmarks.control_plane.supervisor_process"
        paths = [str(self._folder / name) for name in ("socket", "payload.json", "records")]
        self._process = subprocess.Popen([sys.executable, "-m", module, *paths])

    def kill_supervisor(self) -> None:
        """Kill the supervisor with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def restart_supervisor(self) -> float:
        """Kill and start the supervisor. Return the seconds until it has adopted the running generation."""
        generation, before = self.status.generation, self._boot_id
        self.kill_supervisor()
        begun_s = time.monotonic()
        self.start_supervisor()
        await self.wait_for(lambda: self._boot_id != before and self.status.generation == generation)
        return time.monotonic() - begun_s

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU time that the supervisor has used."""
        return cpu_seconds([self.pid])

    def peak_bytes(self) -> int:
        """Return the largest memory of the supervisor so far."""
        fields = (line.split() for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return next(int(field[1]) * 1024 for field in fields if field[0] == "VmHWM:")

    async def wait_for(self, condition: Any, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until a condition holds after a sync.

        Raises:
            TimeoutError: it did not hold in time.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.synced.clear()
                await self.synced.wait()

    async def wait_until_training(self, after: int = 0) -> None:
        """Wait until a generation newer than `after` has committed its first steps."""
        await self.wait_for(
            lambda: (
                self.status.generation > after and self.status.state == "RUNNING" and self.status.phase == "training"
            )
        )

    # ------------------------------------------------------------ the supervisor's calls

    def _connect(self) -> Peer:
        self._peer = Peer(self._answer, self._record_order)
        return self._peer

    def _record_order(self, kind: str, value: Any) -> None:
        """Record that an order has arrived. Agents on nodes of their own would not wait for the answers of others."""
        if kind in ("kill_ranks", "form_ranks"):
            self.orders.setdefault(kind, {})[value[0]] = time.monotonic()

    def _answer(self, kind: str, value: Any) -> Any:
        if kind == "start":
            config: Any = from_json(value)
            if config.node_id not in self.agents:
                agent = self.agents[config.node_id] = SimulatedAgent(config, self._report, self.steps)
                self._tasks.append(asyncio.get_running_loop().create_task(agent.report_until_cancelled()))
            return None
        if kind == "kill":
            return None
        node_id, arguments = value
        answer = self.agents[node_id].answer(kind, arguments)
        return _value_later(answer) if inspect.isawaitable(answer) else {"value": answer}

    async def _report(self, report: dict[str, Any]) -> Any:
        try:
            return await self._peer.call("report", report)
        except CallFailedError as error:
            raise ConnectionError(str(error)) from error

    # ------------------------------------------------------------ work in the background

    async def _sync_until_cancelled(self) -> None:
        """Poll the supervisor as the controller does, and acknowledge every event."""
        while True:
            try:
                request = SyncRequest(acked_seq=self._acked, boot_id=self._boot_id, wait_s=2.0).to_json()
                request["intents"]["nodes"] = self._nodes_json  # encoded once: agents share this process
                reply = SyncReply.from_json(await self._peer.call("sync", request))
            except CallFailedError:
                await asyncio.sleep(0.05)
                continue
            if reply.boot_id != self._boot_id:
                self._acked = 0
            self._boot_id, self.status = reply.boot_id, reply.status
            self._acked = max(self._acked, reply.newest_seq)
            self.causes |= {event.data["id"]: event.data["cause"] for event in reply.events if event.type == "incident"}
            self.synced.set()
            await asyncio.sleep(0.1)

    async def _send_heartbeats(self) -> None:
        """Send the heartbeats of all agents that know the address of the supervisor."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        begun_s, turn = time.monotonic(), 0
        with sock:
            while True:
                for agent in list(self.agents.values())[turn % _SLICES :: _SLICES]:
                    if agent.listener is not None:
                        listener = Listener.from_json(agent.listener)
                        with contextlib.suppress(OSError):
                            sock.sendto(listener.datagram(agent.config.node_id), (listener.host, listener.port))
                turn += 1
                await asyncio.sleep(max(0.0, begun_s + turn * EVERY_S / _SLICES - time.monotonic()))

    async def _run_steps(self) -> None:
        """Report each step of the leading rank, and hold the sets that are due for mirrors."""
        while True:
            await asyncio.sleep(STEP_S)
            leader = next((agent for agent in self.agents.values() if agent.is_leader), None)
            if leader is None:
                continue
            leader.commit_step()
            if leader.pop_mirror_request():
                for agent in self.agents.values():
                    agent.pin(leader.generation, self.steps.step)


async def _value_later(answer: Awaitable[Any]) -> Any:
    return {"value": await answer}


def _payload(nodes: int) -> dict[str, Any]:
    """Return the start configuration of a job with eight ranks on each node."""
    ranks = nodes * RANKS_PER_NODE
    spec = parse_spec({
        "name": "large",
        "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
        "training": {"global_batch": ranks, "micro_batch": 1, "sequence": 8, "steps": 10**6},
        "layout": {"dp": ranks},
        "recovery": {"budgets": {"rank_exit": 1000}},
    })  # fmt: skip
    return {
        "job_id": "job_large",
        "spec": spec.model_dump(mode="json"),
        "layout": {"dp_shard": ranks},
        "nodes": [
            {
                "node_id": os.urandom(28).hex(),
                "name": f"gpu-node-{number}",
                "address": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
                "ranks": RANKS_PER_NODE,
                "devices": list(range(RANKS_PER_NODE)),
                "domain": [f"block-{number // 64}", f"rack-{number // 8}"],
            }
            for number in range(nodes)
        ],
        "storage_uri": "file:///benchmark/storage",
        "datasets_uri": "file:///benchmark/datasets",
    }
