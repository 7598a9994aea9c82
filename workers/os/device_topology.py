"""NUMA nodes of this node, and the GPUs that reach each other over NVLink. Read from /sys and from NVML.

This module returns plain data. The control plane draws the conclusions
(`service/policy/topology/device_islands.py`):

    numa      [NUMA node, its cores as the kernel lists them, e.g. "0-15,32-47"]
    gpus      `{index, bus, numa, links, switches}`. An unknown `numa` is -1. `links` has the bus of each GPU at the
              other end. `switches` counts the links to a switch.
    fabric    name of the domain of GPUs that NVLink switches join across nodes; empty if there is none
"""

import ctypes
from pathlib import Path
from typing import Any

_NODES, _DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")
_SUCCESS = 0
_MOST_LINKS = 18
"""Largest number of links of one GPU: Hopper and Blackwell have 18 (NVML_NVLINK_MAX_LINKS)."""
_TO_GPU, _TO_SWITCH = 0, 2
"""nvmlIntNvLinkDeviceType_t; 1 is a POWER9."""
_FABRIC_COMPLETED = 3


class _Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Fabric(ctypes.Structure):
    """nvmlGpuFabricInfo_t."""

    _fields_ = (
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique_id", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


def read(nodes: Path = _NODES, devices: Path = _DEVICES) -> dict[str, Any]:
    """Return the topology, as far as this node reports it."""
    found: dict[str, Any] = {"numa": _numa(nodes), "gpus": [], "fabric": ""}
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return found
    if library.nvmlInit_v2() != _SUCCESS:
        return found
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == _SUCCESS:
            gpus = [(index, _handle(library, index)) for index in range(count.value)]
            there = [(index, handle) for index, handle in gpus if handle is not None]
            found["gpus"] = [_gpu(library, index, handle, devices) for index, handle in there]
            found["fabric"] = _fabric(library, there[0][1]) if there else ""
        return found
    finally:
        library.nvmlShutdown()


def _numa(nodes: Path) -> list[list[Any]]:
    found: list[list[Any]] = []
    for folder in nodes.glob("node[0-9]*"):
        try:
            found.append([int(folder.name.removeprefix("node")), (folder / "cpulist").read_text().strip()])
        except OSError:
            continue
    return sorted(found)


def _handle(library: ctypes.CDLL, index: int) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    return handle if code == _SUCCESS else None


def _gpu(library: ctypes.CDLL, index: int, handle: ctypes.c_void_p, devices: Path) -> dict[str, Any]:
    place, bus = _Pci(), ""
    if library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(place)) == _SUCCESS:
        bus = _bus(place)
    links, switches = list[str](), 0
    for link in range(_MOST_LINKS):
        is_up, kind = ctypes.c_uint(), ctypes.c_uint()
        number = ctypes.c_uint(link)
        if library.nvmlDeviceGetNvLinkState(handle, number, ctypes.byref(is_up)) != _SUCCESS or not is_up.value:
            continue
        if library.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number, ctypes.byref(kind)) != _SUCCESS:
            continue
        other = _Pci()
        if kind.value == _TO_SWITCH:
            switches += 1
        elif (
            kind.value == _TO_GPU
            and library.nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, number, ctypes.byref(other)) == _SUCCESS
        ):
            links.append(_bus(other))
    return {"index": index, "bus": bus, "numa": _numa_of(devices, bus), "links": sorted(links), "switches": switches}


def _bus(place: _Pci) -> str:
    """Return the bus ID in the format of /sys: the domain has four digits there and eight in NVML."""
    return f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"


def _numa_of(devices: Path, bus: str) -> int:
    try:
        return int((devices / bus / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def _fabric(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    """Return cluster and clique. GPUs of one clique reach each other over NVLink. Older drivers lack this query."""
    if not hasattr(library, "nvmlDeviceGetGpuFabricInfo"):
        return ""
    info = _Fabric()
    if library.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info)) != _SUCCESS or info.status != _SUCCESS:
        return ""
    uuid = bytes(info.cluster_uuid).hex()
    return f"{uuid}.{info.clique_id}" if info.state == _FABRIC_COMPLETED and uuid.strip("0") else ""
