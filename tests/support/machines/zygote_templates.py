"""Templates of zygotes that this test session started."""

import os
import time
from pathlib import Path

from regroup.workers.os import kill_tree, procfs
from regroup.workers.os.proc_environ import arguments, variables
from tests.support.checks.leaks import SESSION, SESSION_VARIABLE


def templates() -> list[int]:
    """Return the pids of the templates, without the zygotes that they forked."""
    ours = f"{SESSION_VARIABLE}={SESSION}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if b"regroup.workers.zygote.template" in arguments(pid) and ours in variables(pid):
                found.append(pid)
        except OSError:
            continue
    forked = {child for pid in found for child in procfs.children(pid)}
    return [pid for pid in found if pid not in forked and pid != os.getpid() and not procfs.is_zombie(pid)]


def kill_templates() -> None:
    """Kill the templates and their zygotes, and wait until they have ended: a dying one still accepts connections."""
    pids = [each for pid in templates() for each in (pid, *procfs.descendants(pid))]
    kill_tree.kill(pids)
    while not all(procfs.is_zombie(pid) for pid in pids):
        time.sleep(0.002)
