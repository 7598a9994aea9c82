"""A supervisor in a process of its own: the product's `Supervisor`, on a socket in place of Ray.

python -m benchmarks.control_plane.supervisor_process SOCKET PAYLOAD RECORDS
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from benchmarks.control_plane.frames import CallFailedError, Peer
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.supervisor import Adapters, Supervisor
from regroup.workers.contract import agent_wire
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import to_json


class SocketAgents:
    """The agents of a job behind the socket. Calls are encoded as for Ray (`RayAgents`)."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def start(self, config: AgentConfig) -> None:
        """Create the agent."""
        await self._peer.call("start", to_json(config))

    async def kill(self, node_id: str) -> None:
        """Kill the agent."""
        await self._peer.call("kill", node_id)

    async def planned_end(self, node_id: str) -> str:
        """Return nothing: no node ends by plan."""
        return ""

    def agent(self, node_id: str, *, timeout_s: float) -> AgentApi:
        """Return a node's agent."""

        async def send(method: str, arguments: list[Any]) -> Any:
            try:
                async with asyncio.timeout(timeout_s):
                    return agent_wire.value_of(await self._peer.call(method, (node_id, arguments)))
            except AgentFailedError as error:
                raise AgentError.of(node_id, error.failure) from error
            except (TimeoutError, CallFailedError) as error:
                raise AgentLostError(node_id, f"agent {node_id[:8]} did not answer: {error}") from error

        return agent_wire.client(send)


class FileRecords:
    """Create-only records in a folder: they outlive the supervisor, as those of the cluster do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def create(self, key: str, value: bytes) -> bool:
        """Write a record; False if it exists."""
        return await asyncio.to_thread(self._create, key, value)

    async def read(self, prefix: str) -> Mapping[str, bytes]:
        """Return the records below a prefix."""
        return await asyncio.to_thread(self._read, prefix)

    def _create(self, key: str, value: bytes) -> bool:
        try:
            with (self._folder / quote(key, safe="")).open("xb") as file:
                file.write(value)
        except FileExistsError:
            return False
        return True

    def _read(self, prefix: str) -> dict[str, bytes]:
        found = {unquote(path.name): path for path in self._folder.iterdir()}
        return {key: path.read_bytes() for key, path in found.items() if key.startswith(prefix)}


async def serve(socket: Path, payload: dict[str, Any], records: Path) -> None:
    """Connect to the agents, and answer calls until the connection ends."""
    supervisors: list[Supervisor] = []

    async def answer(kind: str, value: Any) -> Any:
        supervisor = supervisors[0]
        return await (supervisor.report(value) if kind == "report" else supervisor.sync(value))

    _, peer = await asyncio.get_running_loop().create_unix_connection(lambda: Peer(answer), str(socket))
    adapters = Adapters(
        agents=lambda _: SocketAgents(peer),
        records=FileRecords(records),
        export_metrics=lambda _: lambda event: None,
        address=lambda: "127.0.0.1",
    )
    supervisors.append(Supervisor(payload, adapters))
    await peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])))
