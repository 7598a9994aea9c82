"""Planner inputs that several tests use."""

from regroup.service.domain.hardware import find_device
from regroup.service.planner.model_shape import PRESETS
from regroup.service.planner.types import Cluster, Work


def cluster(name: str, gpus: int) -> Cluster:
    """Return a cluster of this number of devices, in nodes of their usual size."""
    device = find_device(name)
    assert device is not None
    return Cluster(device, gpus, device.domain, device.network_bytes_s)


def work(model: str, batch: int, sequence: int, precision: str = "bf16") -> Work:
    """Return the work of one step of a preset."""
    return Work(PRESETS[model], batch, sequence, precision)
