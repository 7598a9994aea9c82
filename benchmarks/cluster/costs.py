"""CPU time of the server, of Ray and of a job's actors, without the ranks."""

import time

from benchmarks.cluster import processes
from benchmarks.cluster.regroup_server import Server

_ZYGOTES = "regroup.workers.zygote."
"""Part of the command of zygotes, and of the templates that fork them."""


def idle_cores(server: Server, seconds: float) -> dict[str, float]:
    """Measure the cores that the server and its Ray cluster use over `seconds` while no job runs."""
    groups = {"server": {server.process}, "ray": server.processes() - {server.process}}
    before = {name: processes.cpu_seconds(pids) for name, pids in groups.items()}
    begun = time.monotonic()
    time.sleep(seconds)
    wall_s = time.monotonic() - begun
    return {name: (processes.cpu_seconds(pids) - before[name]) / wall_s for name, pids in groups.items()}


def control_plane_s(server: Server) -> float:
    """Return the CPU seconds used so far by all that the server started, except zygotes, their ranks and savers."""
    everything = server.processes()
    zygotes = {pid for pid in everything if _ZYGOTES in processes.command_line(pid)}
    return processes.cpu_seconds(everything - processes.descendants(zygotes))
