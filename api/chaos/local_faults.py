"""Failures that come from outside a job: parts of the platform on this machine are killed, frozen or damaged.

Only what `regroup serve` started on one state directory is ever struck: its server, and processes that carry the mark
of its local Ray. Nodes of a cluster that others run cannot be struck from here.
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
_OF_RANKS = "memfd:regroup-"
"""An agent that has formed ranks holds such memory; one in waiting does not."""
_ALONE_WITHIN_S = 10.0
_FINDS_OUT_WITHIN_S = 5.0
"""A raylet that Ray has given up hears so with its first words."""


@dataclass(frozen=True)
class Struck:
    """What was done, and when."""

    time_s: float
    """Unix seconds right before the signal, or the write."""
    what: str
    """For people."""
    frozen: tuple[Process, ...] = ()
    """Processes that were stopped and wait to be thawed."""


class LocalFaults:
    """What can be done to the platform of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def kill_server(self) -> Struck:
        """SIGKILL the control plane."""
        record = control_plane.read_record(self._state_dir)
        if record is None or not record.process.is_alive:
            raise NotFoundError(f"no server runs on {self._state_dir}")
        return _killed([record.process], f"server, process {record.pid}")

    def kill_supervisor(self) -> Struck:
        """SIGKILL the supervisor; there must be one job."""
        found = self._alone("supervisor", lambda: self._titled(_CONTROL, (_SUPERVISOR,)))
        return _killed([found], f"supervisor, process {found.pid}")

    def kill_agent(self, node: str) -> Struck:
        """SIGKILL the agent that runs ranks on a node; what is below it is left to whoever notices."""
        found = self._alone(f"agent on {node}", lambda: self._agents(node))
        return _killed([found], f"agent on {node}, process {found.pid}")

    def kill_node(self, node: str) -> Struck:
        """SIGKILL everything that runs on a node, its raylet first."""
        found = self._of(node)
        return _killed(found, f"node {node}, {len(found)} processes")

    def freeze_node(self, node: str) -> Struck:
        """SIGSTOP everything that runs on a node: silent, with every connection open. `thaw` it."""
        found = self._of(node)
        at_s = time.time()
        processes.send(found, signal.SIGSTOP)
        return Struck(at_s, f"froze node {node}, {len(found)} processes", tuple(found))

    def thaw(self, struck: Struck) -> bool:
        """SIGCONT what was frozen and still lives. Whether the node stays: one that Ray has missed meanwhile ends."""
        processes.send(struck.frozen, signal.SIGCONT)
        raylets = [process for process in struck.frozen if process.name == _RAYLET]
        deadline = time.monotonic() + _FINDS_OUT_WITHIN_S
        while any(process.is_alive for process in raylets) and time.monotonic() < deadline:
            time.sleep(0.05)
        return any(process.is_alive for process in raylets)

    def _of(self, node: str) -> list[Process]:
        found = ray_cluster.node_processes(self._cluster(), node)
        if not found:
            raise NotFoundError(f"no node {node} runs on {self._state_dir}")
        return sorted(found, key=lambda process: (process.name != _RAYLET, process.started))

    def _titled(self, node: str, titles: tuple[bytes, ...]) -> list[Process]:
        return [
            process for process in self._of(node) if b"".join(processes.command_line(process)[:1]).startswith(titles)
        ]

    def _agents(self, node: str) -> list[Process]:
        return [
            process
            for process in self._titled(node, _AGENTS)
            if any(_OF_RANKS in target for target in processes.open_files(process))
        ]

    def _alone(self, what: str, look: Callable[[], list[Process]]) -> Process:
        """The one process of a kind, once those of former jobs are gone."""
        deadline = time.monotonic() + _ALONE_WITHIN_S
        while len(found := look()) != 1:
            if time.monotonic() > deadline:
                raise ConflictError(f"there are {len(found)} processes that are {what}; one job must run, and no other")
            time.sleep(0.02)
        return found[0]

    def _cluster(self) -> ray_cluster.LocalRay:
        cluster = ray_cluster.load(self._state_dir)
        if cluster is None:
            raise NotFoundError(
                f"no local Ray was started on {self._state_dir}: only nodes of `regroup serve --local-nodes N` can be "
                "struck from outside"
            )
        return cluster


def flip_byte(checkpoint_uri: str) -> Struck:
    """Change one byte in the middle of a checkpoint's largest file."""
    shard = _largest(checkpoint_uri)
    struck = Struck(time.time(), f"flipped a byte of {shard}")
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return struck


def truncate(checkpoint_uri: str) -> Struck:
    """Cut a checkpoint's largest file in half."""
    shard = _largest(checkpoint_uri)
    struck = Struck(time.time(), f"truncated {shard}")
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)
    return struck


def delete_shard(checkpoint_uri: str) -> Struck:
    """Remove a checkpoint's largest file."""
    shard = _largest(checkpoint_uri)
    struck = Struck(time.time(), f"deleted {shard}")
    shard.unlink()
    return struck


def _largest(checkpoint_uri: str) -> Path:
    place = urlsplit(checkpoint_uri)
    if place.scheme not in ("file", ""):
        raise ConflictError(f"{checkpoint_uri} is not on this machine: only checkpoints in a folder can be damaged")
    manifest = json.loads((Path(place.path) / "manifest.json").read_text())
    return Path(place.path) / max(manifest["files"], key=lambda entry: entry["size_bytes"])["name"]


def _killed(found: list[Process], what: str) -> Struck:
    at_s = time.time()
    processes.send(found, signal.SIGKILL)
    processes.kill(found)
    return Struck(at_s, f"killed {what}")
