"""Devices that jobs held, as spans of time, and their device-seconds in a window."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ACCELERATOR = "accelerator"
"""Field of a reservation with the GPU type of its node; empty if that is unknown."""
CPU = "cpu"
"""Accelerator class of ranks without a GPU."""
UNNAMED = "cuda"
"""Accelerator class of GPUs whose type is unknown: their node has no label, and the spec names none."""


@dataclass(frozen=True)
class DeviceSpan:
    """Devices that a job held from `start_s` until `end_s`, Unix seconds."""

    accelerator: str
    devices: int
    start_s: float
    end_s: float | None = None
    """None: the job still holds them."""

    def device_seconds(self, from_s: float, to_s: float) -> float:
        """Return the device-seconds in the window [from_s, to_s). A span without an end lasts as long as the window."""
        end_s = to_s if self.end_s is None else min(self.end_s, to_s)
        return self.devices * max(0.0, end_s - max(self.start_s, from_s))


def span_of(reservation: Mapping[str, Any], requested: str | None, start_s: float, end_s: float | None) -> DeviceSpan:
    """Return the devices of a reservation. One whose record is damaged has none.

    Args:
        reservation: stored data of the reservation.
        requested: GPU type that the spec of the job requires; None if it requires none.
    """
    ranks = reservation.get("ranks")
    devices = ranks if isinstance(ranks, int) and ranks > 0 else 0
    if reservation.get("device_kind") != "cuda":
        return DeviceSpan(CPU, devices, start_s, end_s)
    return DeviceSpan(str(reservation.get(ACCELERATOR) or requested or UNNAMED), devices, start_s, end_s)


def merge_spans(spans: Iterable[DeviceSpan], until_s: float) -> list[DeviceSpan]:
    """Return as few spans as possible with the same devices at every moment, by accelerator and time.

    Args:
        until_s: end of the spans that have none.
    """
    changes: dict[str, Counter[float]] = {}
    for span in spans:
        end_s = until_s if span.end_s is None else span.end_s
        if end_s > span.start_s and span.devices:
            change = changes.setdefault(span.accelerator, Counter())
            change[span.start_s] += span.devices
            change[end_s] -= span.devices
    merged = list[DeviceSpan]()
    for accelerator, change in sorted(changes.items()):
        devices, since_s = 0, 0.0
        for at_s in sorted(at_s for at_s, count in change.items() if count):
            if devices:
                merged.append(DeviceSpan(accelerator, devices, since_s, at_s))
            devices, since_s = devices + change[at_s], at_s
    return merged
