"""Facts of the node that the job's processes need: interface, log folder, memory, secrets."""

import fcntl
import os
import platform
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regroup.workers.os.secret_source import SecretSource

_SIOCGIFADDR = 0x8915
CGROUP = Path("/sys/fs/cgroup")

SECRETS_DIR_VARIABLE = "REGROUP_SECRETS_DIR"
"""Variable of a node that names the folder with one folder for each mounted Secret."""
DEFAULT_SECRETS_DIR = "/var/run/secrets/regroup"


class SecretMissing(Exception):
    """A secret's source does not exist on this node; its value is never part of the message."""


def interface_of(address: str) -> str:
    """Return the network interface that carries an IPv4 address; `lo` if none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
            except OSError:
                continue  # this interface has no IPv4 address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return "lo"


def session_log_dir() -> Path | None:
    """Return the folder of this process's log: for an actor the log folder of the Ray session."""
    target = os.readlink("/proc/self/fd/1")
    return Path(target).parent if target.startswith("/") and "/logs/" in target else None


def host_facts() -> dict[str, Any]:
    """Return CPU count, memory and versions, for people."""
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "memory_bytes": min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *container_memory()[:1]]),
        "free_memory_bytes": free_memory_bytes(),
    }


def free_memory_bytes() -> int:
    """Return the memory available without swapping (MemAvailable), within the limit of the container."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min([int(line.split()[1]) * 1024, *container_memory()[1:]])
    return 0


def container_memory(cgroup: Path = CGROUP) -> tuple[int, ...]:
    """Return the memory limit of this container and the bytes still available; empty without a limit.

    Cached pages of files are reclaimable and count as available. Pages of memory files are not.
    """
    try:
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        pages = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max"
        return ()
    reclaimable = int(pages.get("active_file", 0)) + int(pages.get("inactive_file", 0))
    return limit, max(0, limit - used + reclaimable)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the file system of a folder, for users other than root."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def secret(name: str, source: SecretSource, project_secrets: Mapping[str, str] | None = None) -> str:
    """Return the value of a secret: of the project, from this node's environment, a file, or a Kubernetes Secret.

    Args:
        name: its variable.
        source: where the node finds it.
        project_secrets: values of the project's secrets that this node has received.

    Raises:
        SecretMissing: The source does not exist on this node.
    """
    if stored := source.from_project:
        if project_secrets is None or stored not in project_secrets:
            raise SecretMissing(f"secret {name}: node {platform.node()} has not received the value of {stored!r}")
        return project_secrets[stored]
    variable, file, mounted = source.from_env, source.from_file, source.from_kubernetes
    if mounted is not None:
        folder = os.environ.get(SECRETS_DIR_VARIABLE) or DEFAULT_SECRETS_DIR
        path = Path(folder) / mounted.name / mounted.key
        file = str(path)
        if not path.exists():
            raise SecretMissing(
                f"secret {name}: key {mounted.key} of Secret {mounted.name} is not mounted on node "
                f"{platform.node()}: there is no {file}; mount the Secret there, or set {SECRETS_DIR_VARIABLE}"
            )
    if variable:
        if variable not in os.environ:
            raise SecretMissing(f"secret {name}: variable {variable} is not set on node {platform.node()}")
        return os.environ[variable]
    try:
        return Path(str(file)).read_text().rstrip("\n")
    except OSError as error:
        raise SecretMissing(f"secret {name}: file {file} on node {platform.node()}: {error.strerror}") from error


def oom_kills(cgroup: Path = CGROUP / "memory.events", kernel: Path = Path("/proc/vmstat")) -> int:
    """Return the number of out-of-memory kills by the kernel: in this container, or else on the whole machine."""
    for path in (cgroup, kernel):
        try:
            words = dict(line.split() for line in path.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if "oom_kill" in words:
            return int(words["oom_kill"])
    return 0


def bind_listener(host: str, ports: range | None) -> socket.socket:
    """Return a listening socket on `host`, on a free port of `ports`, or on any free port if `ports` is None.

    Raises:
        OSError: No port of the range is free.
    """
    for port in ports if ports is not None else (0,):
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            sock.close()
            continue
        sock.listen(4096)
        return sock
    raise OSError(f"no free port in {ports} on {host}; widen the port range setting")
