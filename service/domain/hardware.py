"""Performance of devices and links: the one table that planner, placement and MFU share.

The table is data: add a row for other devices. Each row names its source. Measured values (`regroup probe`) replace
those of a row with `dataclasses.replace`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TERA = 1e12
_GIGA = 1e9
_STAS = "stas00/ml-engineering@744d01e1"
_SHEET = "NVIDIA datasheet, dense"


@dataclass(frozen=True)
class Link:
    """Connection between two ranks: the α-β model of a ring (Thakur et al. 2005), with the message size at half
    bandwidth."""

    bandwidth_bytes_s: float
    """Bus bandwidth of a large ring all-reduce, one way, as defined by nccl-tests."""
    latency_s: float
    """Latency of one hop of a ring."""
    half_bytes: float
    """Message size at which half of the bandwidth is reached, without the latency of the hops."""
    source: str
    by_ranks: Mapping[int, float] = field(default_factory=dict[int, float])
    """Bandwidth by number of ranks, if it depends on the wiring."""

    def bandwidth_of(self, ranks: int) -> float:
        """Return the bus bandwidth of a group of `ranks` in bytes/s: that of the largest listed group of at most that
        size."""
        listed = [size for size in self.by_ranks if size <= ranks]
        return self.by_ranks[max(listed)] if listed else self.bandwidth_bytes_s


_MIB = float(2**20)
LINKS: Mapping[str, Link] = {
    "nvlink2": Link(
        134.5 * _GIGA, 5e-6, 2 * _MIB, "VIA-Research/vTrain@f8dda847 trace, V100, 8 ranks",
        {2: 22.5 * _GIGA, 3: 45.1 * _GIGA, 4: 85.4 * _GIGA, 5: 37.2 * _GIGA, 6: 45.7 * _GIGA, 7: 87 * _GIGA,
         8: 134.5 * _GIGA},
    ),
    "nvlink3": Link(
        234.9 * _GIGA, 3.1e-6, 8 * _MIB, f"{_STAS} and vTrain trace, A100",
        {2: 197.3 * _GIGA, 3: 211.9 * _GIGA, 4: 221.9 * _GIGA, 6: 227 * _GIGA, 8: 234.9 * _GIGA},
    ),
    "nvlink4": Link(365.6 * _GIGA, 2.7e-6, 8 * _MIB, f"{_STAS}, H200, ring (NVLS off)"),
    "nvlink5": Link(677.8 * _GIGA, 2.7e-6, 8 * _MIB, f"{_STAS}, B200, ring of 5; latency and half as NVLink 4"),
    "pcie4": Link(24 * _GIGA, 10e-6, 2 * _MIB, "75 % of 32 GB/s, PCI-SIG 4.0 x16; not measured"),
    "pcie5": Link(48 * _GIGA, 10e-6, 2 * _MIB, "75 % of 64 GB/s, PCI-SIG 5.0 x16; not measured"),
    "loopback": Link(2 * _GIGA, 50e-6, _MIB, "gloo between processes of one machine; run `regroup probe`"),
}  # fmt: skip
"""Links inside a node, or a domain that NVLink spans, by name."""

NVLS_GAIN: Mapping[str, tuple[int, float]] = {"nvlink4": (5, 480.0 / 367.2), "nvlink5": (6, 838.0 / 677.8)}
"""Minimum number of ranks for in-switch reduction (NVLS), and its speed-up of an all-reduce. All-gather and
reduce-scatter have none. Source: stas00/ml-engineering@744d01e1, H200 and B200."""


@dataclass(frozen=True)
class Device:
    """A device and its usual node."""

    name: str
    """A part of the name that the driver reports."""
    peak_tflops: Mapping[str, float] = field(hash=False)
    """Datasheet peak by precision, without sparsity."""
    ceiling: float
    """Fraction of the peak that the best matrix multiplication reaches."""
    memory_bytes: float
    memory_bytes_s: float
    link: str
    """Name in `LINKS` of the connection between the devices of a node."""
    domain: int
    """Number of devices that `link` connects."""
    network_bytes_s: float
    """One device's share of the network bandwidth of its node, one way."""
    watts: float
    source: str
    reserved_bytes: float | None = None
    """Memory that a process uses before it trains; None for the planner's fitted value, which applies to GPUs."""
    ceiling_source: str = f"{_STAS}, best matmul over the peak"

    def flops(self, precision: str) -> float:
        """Return the operations per second that the best matrix multiplication reaches.

        Raises:
            KeyError: the device does not support that precision.
        """
        peak = _peak(self, precision)
        if peak is None:
            raise KeyError(f"{self.name} does not support {precision}; supported: {', '.join(self.peak_tflops)}")
        return peak * self.ceiling * _TERA


def _gpu(name: str, tflops: Mapping[str, float], ceiling: float, gb: float, tb_s: float, link: str, domain: int,
         ports_gbit: float, watts: float, source: str = _SHEET) -> Device:  # fmt: skip
    memory = (gb * _GIGA, tb_s * _TERA)
    return Device(name, tflops, ceiling, *memory, link, domain, ports_gbit / 8 * _GIGA, watts, source)


_A100 = {"bf16": 312.0, "fp32": 19.5, "fp64": 19.5}
_H100 = {"fp8": 1978.9, "bf16": 989.4, "fp32": 66.9, "fp64": 66.9}
_H100_PCIE = {"fp8": 1513.0, "bf16": 756.5, "fp32": 51.2, "fp64": 51.2}
_B200 = {"fp4": 9000.0, "fp8": 4500.0, "bf16": 2250.0, "fp32": 75.0, "fp64": 37.0}
_GB200 = {"fp4": 10000.0, "fp8": 5000.0, "bf16": 2500.0, "fp32": 80.0, "fp64": 40.0}
_GB300 = {"fp4": 15000.0, "fp8": 5000.0, "bf16": 2500.0, "fp32": 80.0, "fp64": 1.3}
_CPU_SOURCE = "a generic core; run `regroup probe` on the machine"

DEVICES: tuple[Device, ...] = (
    _gpu("GB300", _GB300, 0.84, 288, 8.0, "nvlink5", 72, 800, 1400),
    _gpu("GB200", _GB200, 0.78, 186, 8.0, "nvlink5", 72, 400, 1200),
    _gpu("B200", _B200, 0.78, 180, 7.7, "nvlink5", 8, 400, 1000),
    _gpu("H200", _H100, 0.80, 141, 4.8, "nvlink4", 8, 400, 700),
    _gpu("H100 PCIe", _H100_PCIE, 0.80, 80, 2.0, "pcie5", 8, 200, 350),
    _gpu("H100 96GB", _H100, 0.80, 96, 2.4, "nvlink4", 8, 400, 500, "pytorch/torchtitan docs: HBM2e, 500 W"),
    _gpu("H100", _H100, 0.80, 80, 3.35, "nvlink4", 8, 400, 700),
    _gpu("A100 40GB", _A100, 0.87, 40, 1.555, "nvlink3", 8, 200, 400),
    _gpu("A100", _A100, 0.87, 80, 2.039, "nvlink3", 8, 200, 400),
    _gpu("V100", {"fp16": 125.0, "fp32": 15.7, "fp64": 7.8}, 0.80, 32, 0.9, "nvlink2", 8, 50, 300),
    _gpu("L40S", {"fp8": 733.0, "bf16": 362.1, "fp32": 91.6}, 0.70, 48, 0.864, "pcie4", 8, 50, 350),
    _gpu("L4", {"fp8": 242.0, "bf16": 121.0, "fp32": 30.3}, 0.60, 24, 0.3, "pcie4", 8, 12.5, 72),
    Device("cpu", {"bf16": 0.05, "fp32": 0.1, "fp64": 0.05}, 0.7, 8 * _GIGA, 10 * _GIGA, "loopback", 2, 1.25 * _GIGA,
           10, _CPU_SOURCE, 0.5 * _GIGA, _CPU_SOURCE),
)  # fmt: skip
"""Device table. A longer name precedes a shorter name that it contains: the first full match counts."""


def find_device(text: str) -> Device | None:
    """Return the device that `text` names ("NVIDIA A100-SXM4-40GB", "h100_80gb"); None if it is unknown."""
    words = text.upper().replace("_", " ").replace("-", " ")
    return next((each for each in DEVICES if _is_named(each.name.upper(), words)), None)


def _is_named(name: str, words: str) -> bool:
    return all(re.search(rf"(?<![A-Z0-9]){re.escape(part)}(?![0-9A-Z])", words) for part in name.split())


def peak_flops(precision: str) -> dict[str, float]:
    """Return a part of a GPU's name → its peak operations per second in a precision of the spec."""
    gpus = (each for each in DEVICES if each.name != "cpu")
    return {each.name: peak * _TERA for each in gpus if (peak := _peak(each, precision)) is not None}


def _peak(device: Device, precision: str) -> float | None:
    return device.peak_tflops.get(precision, device.peak_tflops.get("bf16") if precision == "fp16" else None)
