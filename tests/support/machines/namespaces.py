"""Machines that share only a folder: network and mount namespaces, joined by a bridge, with a Ray node in each.

A machine has its own address, /dev/shm and /tmp, which contains its home and working directory. The rest of its file
system is read-only. Only in the shared folder does a machine see the files of another. Needs root, `ip` and `unshare`.
"""

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import regroup
from regroup.api.client.client import Client
from regroup.api.schemas.jobs import Job
from regroup.service.local import processes
from regroup.service.local.processes import Process
from regroup.service.local.ray_cluster import ROLE_LABEL, ray_environment
from tests.support.checks.leaks import SESSION, SESSION_VARIABLE
from tests.support.machines.network_link import Wire
from tests.support.machines.port_forward import WayIn
from tests.support.servers.regroup_server import eventually

CONTROL = "10.77.0.1"
TRAINING = ("10.77.0.2", "10.77.0.3")
SPARES = ("10.77.0.4", "10.77.0.5", "10.77.0.6", "10.77.0.7")
_PORT = 8500  # no search for a free port: each machine has its own ports
_RAY = f"{CONTROL}:6379"
_MARK = "REGROUP_TEST_MACHINES"
_TOKEN = Path("/tmp/ray.token")
_START_S = 90.0
_JOB_S = 180.0


@dataclass(frozen=True)
class Machine:
    """One pair of namespaces. A sleeping process keeps them alive."""

    name: str
    address: str
    log: Path
    """Output of its daemons, stored outside of the machine."""
    anchor: subprocess.Popen[str]
    environment: Mapping[str, str]
    wire: Wire | None = None
    """Cable to the switch, if the cluster has cables."""

    def run(self, *command: str, given: str = "", within_s: float = 30.0) -> str:
        """Run a command on this machine; return its output."""
        done = subprocess.run(
            self._inside(command), env=self.environment, input=given, capture_output=True, text=True,
            timeout=within_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command} on {self.name}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command on this machine."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._inside(command), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def processes(self) -> list[Process]:
        """Return every process of this machine except the sleeping one."""
        mine = Path(f"/proc/{self.anchor.pid}/ns/net").stat().st_ino
        found: list[Process] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                process = processes.find_process(int(folder.name))
                if process is not None and (folder / "ns/net").stat().st_ino == mine:
                    found.append(process)
        return [process for process in found if process.pid != self.anchor.pid]

    def _inside(self, command: tuple[str, ...]) -> list[str]:
        return ["nsenter", f"--target={self.anchor.pid}", "--net", "--mount", "--wd", *command]


Starting: TypeAlias = tuple[Machine, subprocess.Popen[bytes]]


class Cluster:
    """A control machine with Ray's head and `regroup serve`, and training machines with two slots each."""

    def __init__(self, folder: Path, addresses: Sequence[str] = TRAINING, *, has_wires: bool = False) -> None:
        """Set the `addresses` of the training machines. `has_wires`: they have cables that can be cut."""
        self._addresses, self._has_wires = addresses, has_wires
        self.id = uuid.uuid4().hex[:8]
        self.shared = folder / "shared"
        """Folder that all machines share, with the storage and the jobs' data."""
        self.shared.mkdir()
        self._folder = folder
        self._token = secrets.token_hex(32)
        self._machines: list[Machine] = []
        self._way_in: WayIn | None = None

    @property
    def control(self) -> Machine:
        """Machine of Ray's head and the server."""
        return self._machines[0]

    @property
    def training(self) -> Sequence[Machine]:
        """Machines that run ranks."""
        return self._machines[1:]

    def start(self) -> None:
        """Create the machines; start Ray on each, and the server."""
        for address in (CONTROL, *self._addresses):
            self._machines.append(self._machine(address))
        head = [
            "--head", "--port=6379", "--no-monitor", "--include-dashboard=false", "--num-cpus=0",
            f"--labels={ROLE_LABEL}=control",
        ]  # fmt: skip
        joining = [f"--address={_RAY}", "--num-cpus=2", f"--labels={ROLE_LABEL}=training"]
        _started([self._ray_start(self.control, head)])
        _started([self._ray_start(machine, joining) for machine in self.training])
        serve = ["serve", "--ray-address", _RAY, "--allow-faults", "--storage-uri", (self.shared / "storage").as_uri()]
        server = self.control.start(sys.executable, "-m", "regroup.api.cli", *serve)

        def serves() -> bool:
            log = self.control.log.read_text()
            assert server.poll() is None, f"the server ended: {log}"
            return f"regroup serves at http://127.0.0.1:{_PORT}" in log

        eventually(serves, _START_S)
        self._way_in = WayIn(self.control.anchor.pid, _PORT, self.control.environment)

    def submit(self, spec: Mapping[str, Any]) -> Job:
        """Submit a job with the command line and wait for its end."""
        path = f"/tmp/{spec['name']}.json"
        self.control.run("tee", path, given=json.dumps(spec))
        submit = [sys.executable, "-m", "regroup.api.cli", "submit", path, "--wait", "--json"]
        return Job.model_validate_json(self.control.run(*submit, within_s=_JOB_S))

    @cached_property
    def client(self) -> Client:
        """Client of the server, from outside of the machines."""
        assert self._way_in is not None, "the cluster has not been started"
        token = self.control.run("cat", "/tmp/state/api.token").strip()
        return Client(f"http://127.0.0.1:{self._way_in.port}", token=token)

    def end(self) -> None:
        """End every process of the machines, and remove the machines."""
        if self._way_in is not None:
            self.client.close()
            self._way_in.close()
        # Agents of a dead raylet have no parent, and their long titles overwrite the mark.
        for machine in self._machines:
            processes.kill(machine.processes())
        while running := processes.with_descendants(processes.find_marked(_MARK, self.id)):
            processes.kill(running)
        for machine in self._machines:
            machine.anchor.communicate()
            if machine.wire is not None:
                machine.wire.close()
        for name in self.namespaces():
            _ip("netns", "del", name)

    def namespaces(self) -> list[str]:
        """Return the names of its network namespaces."""
        return [path.name for path in Path("/run/netns").glob(f"rg-{self.id}-*")]

    def left(self) -> list[str]:
        """Return the processes and namespaces that remain."""
        return [*(process.name for process in processes.find_marked(_MARK, self.id)), *self.namespaces()]

    # ------------------------------------------------------------ machines

    def _machine(self, address: str) -> Machine:
        number = address.rpartition(".")[2]
        name, switch = f"rg-{self.id}-{number}", f"rg-{self.id}-{CONTROL.rpartition('.')[2]}"
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        environment, wire = self._environment(), None
        if name == switch:
            _ip("-n", name, "link", "add", "eth0", "type", "bridge")
        elif self._has_wires:
            wire = Wire((name, "eth0"), (switch, f"to{number}"), environment)
            _ip("-n", switch, "link", "set", f"to{number}", "master", "eth0", "up")
        else:
            _ip("-n", switch, "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "set", f"to{number}", "master", "eth0", "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        anchor = subprocess.Popen(
            ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-euc", self._own_files(name)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert anchor.stdout is not None
        assert anchor.stdout.readline() == "ready\n", f"no machine at {address}"
        machine = Machine(name, address, self._folder / f"{name}.log", anchor, environment, wire)
        machine.run("sh", "-c", f"umask 077; cat > {_TOKEN}", given=self._token)
        return machine

    def _own_files(self, name: str) -> str:
        """Return a shell script that gives this mount namespace its own files, prints `ready` and sleeps.

        Code and the shared folder may be below /tmp. They are mounted in the new /tmp before it covers the old one.
        """
        draft = self._folder / name
        draft.mkdir()
        code = {Path(sys.prefix), Path(sys.base_prefix), Path(regroup.__path__[0]).resolve().parent}
        lines = [f"mount -t tmpfs tmpfs {draft}"]
        for path in sorted({*code, self.shared}):
            at = draft / path.relative_to("/tmp") if path.is_relative_to("/tmp") else path
            lines += [f"mkdir -p {at}", f"mount --bind {path} {at}"]
            lines += [f"mount -o remount,bind,ro {at}"] if path in code else []
        lines += [
            f"mount --move {draft} /tmp",
            "mount -t tmpfs tmpfs /dev/shm",
            "mount -o remount,bind,ro /",
            "mkdir /tmp/home /tmp/work",
            "cd /tmp/work",
            "echo ready",
            "exec sleep infinity",
        ]
        return "\n".join(lines)

    def _environment(self) -> dict[str, str]:
        hidden = ("RAY_", "REGROUP_", "TMP", "TEMP")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
            SESSION_VARIABLE: SESSION,
            **ray_environment(_TOKEN),
            "HOME": "/tmp/home",
            "REGROUP_STATE_DIR": "/tmp/state",
            _MARK: self.id,
        }

    # ------------------------------------------------------------ Ray

    def _ray_start(self, machine: Machine, flags: Sequence[str]) -> Starting:
        same = [
            f"--node-ip-address={machine.address}", "--num-gpus=0", "--object-store-memory=83886080",
            "--include-log-monitor=false", "--disable-usage-stats",
        ]  # fmt: skip
        return machine, machine.start(sys.executable, "-m", "ray.scripts.scripts", "start", *flags, *same)


@contextlib.contextmanager
def cluster(folder: Path, addresses: Sequence[str] = TRAINING, *, has_wires: bool = False) -> Generator[Cluster]:
    """Run machines with `regroup serve`; check that nothing of them remains."""
    made = Cluster(folder, addresses, has_wires=has_wires)
    try:
        made.start()
        yield made
    finally:
        made.end()
        assert not made.left(), made.left()


def _started(nodes: Sequence[Starting]) -> None:
    for machine, starting in nodes:
        assert starting.wait(_START_S) == 0, f"no Ray on {machine.address}: {machine.log.read_text()}"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(('ip', *arguments))}: {done.stderr}"
