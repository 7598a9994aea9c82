"""What ended jobs have left on this machine: processes and folders that still name them, and names in shared memory."""

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
class Held:
    """What outlives jobs holds at one moment."""

    by_process: Mapping[Process, Counter[str]]
    """Of GCS and raylets: open descriptors by kind; connections, which come and go, are left out."""
    shared_memory: frozenset[str]


def held(daemons: Iterable[Process]) -> Held:
    """Look at the daemons of a local cluster now."""
    return Held(
        {each: _kinds(each) for each in daemons if each.name in _LONG_LIVED and each.is_alive},
        frozenset(path.name for path in _SHARED_MEMORY.iterdir()),
    )


def beyond(before: Held, now: Held) -> list[str]:
    """A line for each thing that is held now and was not before, by processes that lived at both times."""
    grown = [
        f"{count} more of {kind} in {process.name} ({process.pid})"
        for process, kinds in now.by_process.items()
        if process in before.by_process
        for kind, count in (kinds - before.by_process[process]).items()
    ]
    return [*grown, *(f"shared memory {name}" for name in sorted(now.shared_memory - before.shared_memory))]


def naming(jobs: Sequence[str]) -> list[str]:
    """A line for each process and scratch folder that names one of these jobs."""
    folders = (f"folder {path}" for path in Path(tempfile.gettempdir()).iterdir())
    return [*(line for line in folders if any(job in line for job in jobs)), *processes_naming(jobs)]


def processes_naming(jobs: Sequence[str]) -> Iterator[str]:
    """A line for each process with one of the jobs in its command, environment, working folder or open files."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            words: list[str] = []
            with contextlib.suppress(OSError):  # it ended while we looked, or is another user's
                words = _words(Path("/proc", name))
            named = [word for word in words if any(job in word for job in jobs)]
            if named:
                yield f"process {name} ({words[0]}), by {named[0]}"


def _kinds(process: Process) -> Counter[str]:
    targets = (target for target in processes.files(process) if not target.startswith("socket:"))
    return Counter(re.sub(r":\[\d+\]", "", target) for target in targets)


def _words(process: Path) -> list[str]:
    pid = int(process.name)
    words = [word.decode(errors="replace") for word in (*arguments(pid), *variables(pid))]
    links = [process / "cwd", *(process / "fd").iterdir()]
    return [*words, *(os.readlink(link) for link in links)]
