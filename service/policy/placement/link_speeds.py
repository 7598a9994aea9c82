"""Link speeds between ranks, by the smallest domain that the path leaves."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.domain.topology import Level

_GIGA = 1e9


@dataclass(frozen=True)
class LinkSpeed:
    """One device's share of the uplink of its domain."""

    bytes_per_s: float
    """Bandwidth one way, while all devices of the domain send."""
    latency_s: float


Links = Mapping[Level, LinkSpeed]
"""Level → uplink of a domain of that level. `node` applies only between nodes of one gpu_domain."""

GPU_LINKS: Links = {
    Level.DEVICE: LinkSpeed(370 * _GIGA, 3e-6),
    Level.NODE: LinkSpeed(370 * _GIGA, 3e-6),
    Level.GPU_DOMAIN: LinkSpeed(45 * _GIGA, 8e-6),
    Level.RACK: LinkSpeed(45 * _GIGA, 10e-6),
    Level.BLOCK: LinkSpeed(45 / 7 * _GIGA, 15e-6),
    Level.ZONE: LinkSpeed(1 * _GIGA, 500e-6),
}
"""Hopper nodes. NVLink 4 as measured for a ring on eight H200 (367 GB/s; NVIDIA's datasheet: 450). One 400 Gb/s port
per device at nine tenths of its rate. Spines without oversubscription, cores with 1:7 (the cluster of Llama 3: arXiv
2407.21783, section 3.3.1). Between zones: 8 Gb/s per device, an assumption."""
CPU_LINKS: Links = {
    Level.DEVICE: LinkSpeed(5 * _GIGA, 20e-6),
    Level.NODE: LinkSpeed(0.6 * _GIGA, 50e-6),
    Level.GPU_DOMAIN: LinkSpeed(0.6 * _GIGA, 50e-6),
    Level.RACK: LinkSpeed(0.3 * _GIGA, 60e-6),
    Level.BLOCK: LinkSpeed(0.15 * _GIGA, 80e-6),
    Level.ZONE: LinkSpeed(0.05 * _GIGA, 1e-3),
}
"""Ranks of gloo on CPUs. Assumed: a 10 Gb/s port for two ranks. Only their order matters."""


def links_for(device: str) -> Links:
    """Return the table of a device type, `cpu` or `cuda`."""
    return GPU_LINKS if device == "cuda" else CPU_LINKS
