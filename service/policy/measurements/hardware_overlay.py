"""Replace table values of hardware with measured ones. Values that were not measured stay."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from regroup.service.domain.hardware import LINKS, Device, Link, find_device
from regroup.service.domain.topology import Level
from regroup.service.policy.measurements.results import MeasuredCollective, MeasuredLevel, ProbeResult
from regroup.service.policy.placement.link_speeds import Links, LinkSpeed

_TERA = 1e12
_HALVES = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0}
"""Number of ring rounds of a collective, as the planner counts them."""


@dataclass(frozen=True)
class MeasuredValue:
    """One measured number, and the table value that it replaces."""

    name: str
    """Name in the tables, with its unit."""
    value: float
    table: float
    """Table value."""
    time_s: float
    """Time of the measurement in Unix seconds."""
    job_id: str
    """Id of the probe job."""

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.time_s, UTC)
        return (
            f"- {self.name}: {self.value:.4g} measured {at:%Y-%m-%d %H:%M} UTC by {self.job_id}, not {self.table:.4g}"
        )


@dataclass(frozen=True)
class Hardware:
    """A device type in its cluster."""

    device: Device
    link: Link
    """Link inside a node."""
    devices_per_node: int
    """Number of devices per node."""
    network_bytes_s: float
    """One device's share of the network bandwidth of its node, one way."""
    measured_values: tuple[MeasuredValue, ...] = ()
    """Values that were measured."""
    probe: ProbeResult | None = None
    """The probe that measured them."""


def measured_hardware(device: Device, probes: Iterable[ProbeResult]) -> Hardware:
    """Return the device's row with the values of the newest probe of such devices."""
    plain = Hardware(device, LINKS[device.link], device.domain, device.network_bytes_s)
    found = next((probe for probe in probes if is_probe_of(probe, device)), None)
    return plain if found is None else _measured(plain, found)


def is_probe_of(probe: ProbeResult, device: Device) -> bool:
    """Return True if the probe measured only devices of this type."""
    if probe.kind == "cpu":
        return device.name == "cpu"
    return all(find_device(name) is device for name in probe.device.split(", "))


def measured_links(table: Links, probe: ProbeResult | None) -> Links:
    """Return link speeds by level. Levels that were not measured keep the table's speeds, but none is faster than a
    link inside it."""
    if probe is None:
        return table
    measured = {each.level: LinkSpeed(each.bytes_s, each.latency_s) for each in probe.levels}
    merged: dict[Level, LinkSpeed] = {}
    inside: LinkSpeed | None = None
    for level in reversed(Level):
        speed = measured.get(level, table[level])
        if level not in measured and inside is not None:
            speed = LinkSpeed(min(speed.bytes_per_s, inside.bytes_per_s), max(speed.latency_s, inside.latency_s))
        merged[level] = inside = speed
    return {level: merged[level] for level in table}


def _measured(plain: Hardware, probe: ProbeResult) -> Hardware:
    device, link, network = _device(plain.device, probe), _link(plain.link, probe), _out_of_nodes(probe)
    found = Hardware(
        device,
        link,
        min(node.ranks for node in probe.nodes),
        plain.network_bytes_s if network is None else network.bytes_s,
    )
    before, after = _figures(plain), _figures(found)
    figures = [
        MeasuredValue(name, value, before.get(name, 0.0), probe.time_s, probe.job_id)
        for name, value in after.items()
        if value != before.get(name)
    ]
    return replace(found, measured_values=tuple(figures), probe=probe)


def _device(device: Device, probe: ProbeResult) -> Device:
    """Return the device with its best measured matrix multiplications.

    The measured memory bandwidth applies only to the generic CPU row: for GPUs the planner's constants were fitted to
    datasheet values.
    """
    best: dict[str, float] = {}
    for each in probe.matmuls:
        best[each.dtype] = max(each.flops, best.get(each.dtype, 0.0))
    flops = {dtype: value / device.ceiling / _TERA for dtype, value in best.items()}
    memory = min(node.memory_bytes_s for node in probe.nodes) if probe.kind == "cpu" else device.memory_bytes_s
    reserved = probe.rank_bytes or device.reserved_bytes
    return replace(device, peak_tflops={**device.peak_tflops, **flops}, memory_bytes_s=memory, reserved_bytes=reserved)


def _link(link: Link, probe: ProbeResult) -> Link:
    """Return the ring latency and bandwidth that reproduce the times of the collectives measured inside nodes."""
    scope = "node" if len(probe.nodes) > 1 else "all"
    found = [each for each in probe.collectives if each.scope == scope and each.name in _HALVES]
    if not found:
        return link
    latency_s, bandwidth = fit_ring(found)
    return Link(bandwidth, latency_s, 0.0, f"measured by {probe.job_id}")


def fit_ring(collectives: Sequence[MeasuredCollective]) -> tuple[float, float]:
    """Return the hop latency in seconds and the bandwidth in bytes per second of the best-fitting ring (least squares
    of relative errors)."""
    rows = [
        (
            _HALVES[each.name] * (each.ranks - 1) / each.seconds,
            _HALVES[each.name] * (each.ranks - 1) / each.ranks * each.size_bytes / each.seconds,
        )
        for each in collectives
    ]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in rows), sum(row[1] for row in rows)
    determinant = aa * bb - ab * ab
    hop_s, byte_s = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant) if determinant else (0.0, 0.0)
    if hop_s < 0 or byte_s <= 0:  # noise: then all of it is bandwidth
        hop_s, byte_s = 0.0, b / bb
    return hop_s, 1 / byte_s


def _out_of_nodes(probe: ProbeResult) -> MeasuredLevel | None:
    return next((each for each in probe.levels if each.level is not Level.DEVICE), None)


def _figures(hardware: Hardware) -> dict[str, float]:
    device, link = hardware.device, hardware.link
    return {
        **{f"{dtype} product FLOP/s": peak * device.ceiling * _TERA for dtype, peak in device.peak_tflops.items()},
        "memory bytes/s": device.memory_bytes_s,
        **({} if device.reserved_bytes is None else {"rank bytes": device.reserved_bytes}),
        "link bytes/s": link.bandwidth_bytes_s,
        "link latency s": link.latency_s,
        "network bytes/s": hardware.network_bytes_s,
        "devices of a node": float(hardware.devices_per_node),
    }
