"""NUMA nodes of this node, and the GPUs that reach each other over NVLink. Read from /sys and from NVML.

This module returns plain data. The control plane draws the conclusions
(`service/policy/topology/device_islands.py`):

    numa      [NUMA node, its cores as the kernel lists them, e.g. "0-15,32-47"]
    gpus      `{index, bus, numa, links, switches}`. An unknown `numa` is -1. `links` has the bus of each GPU at the
              other end. `switches` counts the links to a switch.
    fabric    name of the domain of GPUs that NVLink switches join across nodes; empty if there is none
"""

from pathlib import Path
from typing import Any

from regroup.workers.os import nvml

_NODES, _DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")


def read(nodes: Path = _NODES, devices: Path = _DEVICES) -> dict[str, Any]:
    """Return the topology, as far as this node reports it."""
    found: dict[str, Any] = {"numa": _numa(nodes), "gpus": [], "fabric": ""}
    try:
        with nvml.driver() as has_driver:
            gpus = nvml.gpus() if has_driver else []
            found["gpus"] = [_gpu(gpu, devices) for gpu in gpus]
            found["fabric"] = gpus[0].fabric() if gpus else ""
    except nvml.NvmlError:
        pass  # the pre-flight check reports a driver that does not answer
    return found


def _numa(nodes: Path) -> list[list[Any]]:
    found: list[list[Any]] = []
    for folder in nodes.glob("node[0-9]*"):
        try:
            found.append([int(folder.name.removeprefix("node")), (folder / "cpulist").read_text().strip()])
        except OSError:
            continue
    return sorted(found)


def _gpu(gpu: nvml.Gpu, devices: Path) -> dict[str, Any]:
    bus, links = gpu.bus(), gpu.links()
    return {
        "index": gpu.index,
        "bus": bus,
        "numa": _numa_of(devices, bus),
        "links": sorted(link.bus for link in links if not link.to_switch),
        "switches": sum(link.to_switch for link in links),
    }


def _numa_of(devices: Path, bus: str) -> int:
    try:
        return int((devices / bus / "numa_node").read_text())
    except (OSError, ValueError):
        return -1
