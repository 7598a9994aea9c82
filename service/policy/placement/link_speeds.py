"""How fast ranks reach each other, by the smallest domain that their way has to leave."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.domain.topology import Level

_GIGA = 1e9


@dataclass(frozen=True)
class LinkSpeed:
    """What a device has of the way out of its domain."""

    bytes_per_s: float
    """One way, when all devices of the domain send at once."""
    latency_s: float


Links = Mapping[Level, LinkSpeed]
"""Level → the way out of a domain of that level; `node` only counts between nodes of one gpu_domain."""

GPU_LINKS: Links = {
    Level.DEVICE: LinkSpeed(370 * _GIGA, 3e-6),
    Level.NODE: LinkSpeed(370 * _GIGA, 3e-6),
    Level.GPU_DOMAIN: LinkSpeed(45 * _GIGA, 8e-6),
    Level.RACK: LinkSpeed(45 * _GIGA, 10e-6),
    Level.BLOCK: LinkSpeed(45 / 7 * _GIGA, 15e-6),
    Level.ZONE: LinkSpeed(1 * _GIGA, 500e-6),
}
"""Hopper nodes: NVLink 4 as a ring on eight H200 measures (367 GB/s; NVIDIA's sheet says 450), a 400 Gb/s port a device
at nine tenths of its rate, spines without and cores with 1:7 oversubscription (the cluster of Llama 3: arXiv
2407.21783, section 3.3.1). Between zones: 8 Gb/s a device, our assumption."""
CPU_LINKS: Links = {
    Level.DEVICE: LinkSpeed(5 * _GIGA, 20e-6),
    Level.NODE: LinkSpeed(0.6 * _GIGA, 50e-6),
    Level.GPU_DOMAIN: LinkSpeed(0.6 * _GIGA, 50e-6),
    Level.RACK: LinkSpeed(0.3 * _GIGA, 60e-6),
    Level.BLOCK: LinkSpeed(0.15 * _GIGA, 80e-6),
    Level.ZONE: LinkSpeed(0.05 * _GIGA, 1e-3),
}
"""Ranks of gloo on CPUs: assumed, a 10 Gb/s port for two of them; only their order matters."""


def links_for(device: str) -> Links:
    """The table of a kind of device, `cpu` or `cuda`."""
    return GPU_LINKS if device == "cuda" else CPU_LINKS
