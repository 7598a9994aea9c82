"""External faults: kill, freeze or damage parts of the platform on this machine.

Faults affect only processes that `regroup serve` started on one state directory: its server, and processes with the
mark of its local Ray. Nodes of other clusters cannot be affected.
"""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.local import processes, ray_cluster
from regroup.service.local.processes import Process
from regroup.service.server import control_plane

_CONTROL, _RAYLET = "control", "raylet"
_SUPERVISOR, _AGENTS = b"ray::SupervisorActor", (b"ray::NodeAgent", b"ray::StandbyAgent")
_SINGLE_PROCESS_TIMEOUT_S = 10.0
_RAYLET_EXIT_TIMEOUT_S = 5.0
"""Time in which a thawed raylet exits if Ray has declared its node dead."""


@dataclass(frozen=True)
class Injection:
    """An injected fault."""

    time_s: float
    """Time directly before the signal or the write, in Unix seconds."""
    what: str
    """Description for people."""
    frozen: tuple[Process, ...] = ()
    """Stopped processes, which `thaw` resumes."""


class LocalFaults:
    """The external faults for the platform of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def kill_server(self) -> Injection:
        """SIGKILL the control plane."""
        record = control_plane.read_record(self._state_dir)
        if record is None or not record.process.is_alive:
            raise NotFoundError(f"no server runs on {self._state_dir}")
        return _kill([record.process], f"server, process {record.pid}")

    def kill_supervisor(self) -> Injection:
        """SIGKILL the supervisor. Exactly one job must run."""
        found = self._find_single("supervisor", lambda: self._processes_titled(_CONTROL, (_SUPERVISOR,)))
        return _kill([found], f"supervisor, process {found.pid}")

    def kill_agent(self, node: str) -> Injection:
        """SIGKILL the agent that runs ranks on a node, but not its child processes."""
        found = self._find_single(f"agent on {node}", lambda: self._agent_processes(node))
        return _kill([found], f"agent on {node}, process {found.pid}")

    def kill_node(self, node: str) -> Injection:
        """SIGKILL all processes of a node, its raylet first."""
        found = self._node_processes(node)
        return _kill(found, f"node {node}, {len(found)} processes")

    def freeze_node(self, node: str) -> Injection:
        """SIGSTOP all processes of a node: they stop responding, but their connections stay open. See `thaw`."""
        found = self._node_processes(node)
        at_s = time.time()
        processes.send(found, signal.SIGSTOP)
        return Injection(at_s, f"froze node {node}, {len(found)} processes", tuple(found))

    def thaw(self, injection: Injection) -> bool:
        """SIGCONT the frozen processes that are still alive.

        Returns:
            True if the node stays alive. It exits if Ray declared it dead during the freeze.
        """
        processes.send(injection.frozen, signal.SIGCONT)
        raylets = [process for process in injection.frozen if process.name == _RAYLET]
        deadline = time.monotonic() + _RAYLET_EXIT_TIMEOUT_S
        while any(process.is_alive for process in raylets) and time.monotonic() < deadline:
            time.sleep(0.05)
        return any(process.is_alive for process in raylets)

    def _node_processes(self, node: str) -> list[Process]:
        found = ray_cluster.node_processes(self._cluster(), node)
        if not found:
            raise NotFoundError(f"no node {node} runs on {self._state_dir}")
        return sorted(found, key=lambda process: (process.name != _RAYLET, process.started))

    def _processes_titled(self, node: str, titles: tuple[bytes, ...]) -> list[Process]:
        return [
            process
            for process in self._node_processes(node)
            if b"".join(processes.command_line(process)[:1]).startswith(titles)
        ]

    def _agent_processes(self, node: str) -> list[Process]:
        holders = ray_cluster.scratch_holders()  # a standby agent has no scratch folder
        return [process for process in self._processes_titled(node, _AGENTS) if process.pid in holders]

    def _find_single(self, what: str, find: Callable[[], list[Process]]) -> Process:
        """Wait until the processes of earlier jobs have exited, and return the only process of a kind."""
        deadline = time.monotonic() + _SINGLE_PROCESS_TIMEOUT_S
        while len(found := find()) != 1:
            if time.monotonic() > deadline:
                raise ConflictError(f"found {len(found)} processes for {what}, not 1: run exactly one job")
            time.sleep(0.02)
        return found[0]

    def _cluster(self) -> ray_cluster.LocalRay:
        cluster = ray_cluster.load(self._state_dir)
        if cluster is None:
            raise NotFoundError(
                f"no local Ray was started on {self._state_dir}: external faults need nodes of "
                "`regroup serve --local-nodes N`"
            )
        return cluster


def flip_byte(checkpoint_uri: str) -> Injection:
    """Change one byte in the middle of a checkpoint's largest file."""
    shard = _largest_file(checkpoint_uri)
    injection = Injection(time.time(), f"flipped a byte of {shard}")
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return injection


def truncate(checkpoint_uri: str) -> Injection:
    """Truncate a checkpoint's largest file to half of its size."""
    shard = _largest_file(checkpoint_uri)
    injection = Injection(time.time(), f"truncated {shard}")
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)
    return injection


def delete_shard(checkpoint_uri: str) -> Injection:
    """Remove a checkpoint's largest file."""
    shard = _largest_file(checkpoint_uri)
    injection = Injection(time.time(), f"deleted {shard}")
    shard.unlink()
    return injection


def _largest_file(checkpoint_uri: str) -> Path:
    place = urlsplit(checkpoint_uri)
    if place.scheme not in ("file", ""):
        raise ConflictError(f"{checkpoint_uri} is not on this machine: only checkpoints in a folder can be damaged")
    manifest = json.loads((Path(place.path) / "manifest.json").read_text())
    return Path(place.path) / max(manifest["files"], key=lambda entry: entry["size_bytes"])["name"]


def _kill(found: list[Process], what: str) -> Injection:
    at_s = time.time()
    processes.send(found, signal.SIGKILL)
    processes.kill(found)
    return Injection(at_s, f"killed {what}")
