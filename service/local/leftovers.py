"""Leftovers of ended jobs on this machine: processes, folders and shared memory that still name them."""

import contextlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regroup.service.local import processes
from regroup.service.local.processes import Process
from regroup.workers.os.proc_environ import arguments, variables

_SHARED_MEMORY = Path("/dev/shm")
_LONG_LIVED = ("gcs_server", "raylet")


@dataclass(frozen=True)
class DaemonResources:
    """Resources that Ray's long-lived daemons use at one moment."""

    by_process: Mapping[Process, Counter[str]]
    """Open descriptors of the GCS and the raylets, by kind. Sockets are left out, because connections open and close
    all the time."""
    shared_memory: frozenset[str]
    """Names of segments in `/dev/shm`."""


def inspect_daemons(daemons: Iterable[Process]) -> DaemonResources:
    """Return the resources that the daemons of a local cluster use now."""
    return DaemonResources(
        {each: _descriptor_kinds(each) for each in daemons if each.name in _LONG_LIVED and each.is_alive},
        frozenset(path.name for path in _SHARED_MEMORY.iterdir()),
    )


def describe_growth(before: DaemonResources, now: DaemonResources) -> list[str]:
    """Describe each resource that is new since `before`, in processes that run at both times."""
    grown = [
        f"{count} more of {kind} in {process.name} ({process.pid})"
        for process, kinds in now.by_process.items()
        if process in before.by_process
        for kind, count in (kinds - before.by_process[process]).items()
    ]
    return [*grown, *(f"shared memory {name}" for name in sorted(now.shared_memory - before.shared_memory))]


def find_leftovers(jobs: Sequence[str]) -> list[str]:
    """Describe each process and scratch folder that names one of these jobs."""
    folders = (f"folder {path}" for path in Path(tempfile.gettempdir()).iterdir())
    return [*(line for line in folders if any(job in line for job in jobs)), *find_processes(jobs)]


def find_processes(jobs: Sequence[str]) -> Iterator[str]:
    """Describe each process that names one of the jobs in its command, environment, working folder or open files."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            texts: list[str] = []
            with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
                texts = _process_texts(Path("/proc", name))
            matches = [text for text in texts if any(job in text for job in jobs)]
            if matches:
                yield f"process {name} ({texts[0]}), by {matches[0]}"


def _descriptor_kinds(process: Process) -> Counter[str]:
    targets = (target for target in processes.open_files(process) if not target.startswith("socket:"))
    return Counter(re.sub(r":\[\d+\]", "", target) for target in targets)


def _process_texts(process: Path) -> list[str]:
    pid = int(process.name)
    texts = [text.decode(errors="replace") for text in (*arguments(pid), *variables(pid))]
    links = [process / "cwd", *(process / "fd").iterdir()]
    return [*texts, *(os.readlink(link) for link in links)]
